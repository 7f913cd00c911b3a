"""The paper "Learning to Be Cautious" reproduced with the library: worlds, networks, experiments, reports."""
