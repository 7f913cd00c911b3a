"""Training many models at once: problems, loop, state and checkpoints."""
