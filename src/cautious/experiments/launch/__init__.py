"""Who works on the pieces of an experiment: this process, or a Ray cluster."""
