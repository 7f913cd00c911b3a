"""Where the pieces of an experiment run: in this process, or on a Ray cluster."""
