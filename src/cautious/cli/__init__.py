"""The command line: one module per verb, its tables beside it."""
