"""Training many models at once: problems, loop, checkpoints and sharding."""
