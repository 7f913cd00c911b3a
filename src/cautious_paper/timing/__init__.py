"""How fast this machine is, compared with plain implementations."""
