"""Verbs of the command line that belong to the reproduction."""
