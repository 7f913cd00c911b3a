"""What the reward could be: networks, ensembles, training and the files they live in."""
