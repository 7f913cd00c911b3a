"""How fast this machine is, beside what one would do otherwise."""
