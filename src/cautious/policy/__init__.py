"""Policies to act with: k-of-N decisions, fallback rules and their files."""
