"""The driving experiment."""
