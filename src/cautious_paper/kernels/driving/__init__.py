"""Kernels for the driving network."""
