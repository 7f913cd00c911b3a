"""Policies: k-of-N CFR in bandits and continuing MDPs, exact references, the ordinary optimum, certificates."""
