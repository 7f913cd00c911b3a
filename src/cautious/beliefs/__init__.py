"""Beliefs about the reward: networks, their training, and ensembles of them."""
