"""k-of-N where no table holds the world: Stable-Baselines3's PPO against the belief's worst models."""

from __future__ import annotations

from cautious.errors import MissingPackageError

try:
    import stable_baselines3
except ModuleNotFoundError as error:
    raise MissingPackageError(
        "KofNPPO needs Stable-Baselines3, which is not installed; install it with: pip install 'cautious[rl]'"
    ) from error

__all__ = ["stable_baselines3"]
