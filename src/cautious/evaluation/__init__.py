"""How cautious was it: behaviour and safety of policies, measured exactly."""
