"""Training many models at once."""
