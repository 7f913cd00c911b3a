"""Beliefs that the reproduction trains, and where the ones that come with the package are."""

from __future__ import annotations

from pathlib import Path

SHIPPED = Path(__file__).parents[1] / "shipped"
"""The folder of the beliefs that `RewardEnsemble.load` knows by name."""
