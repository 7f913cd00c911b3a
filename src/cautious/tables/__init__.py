"""A user's data: arrays, CSV files and what their columns mean."""
