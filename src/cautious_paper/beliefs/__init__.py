"""Beliefs about the rewards of the terrains and of the wide road."""
