"""Kernels for the image network."""
