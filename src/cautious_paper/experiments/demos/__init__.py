"""Built-in examples that run in seconds."""
