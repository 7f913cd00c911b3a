"""The image experiments."""
