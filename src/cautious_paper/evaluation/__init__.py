"""Behaviour and safety of policies, measured exactly; calibration of the level."""
