"""Tables and figures of driving runs."""
