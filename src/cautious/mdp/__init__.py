"""Finite Markov decision processes: tables, files, estimates from environments."""
