"""Architectures of reward models: initial weights and predictions of many models at once."""
