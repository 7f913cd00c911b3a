"""Uncertain worlds: a mixture of policies, a bound for every policy, and what memory adds; `oracle` has the algorithm."""
