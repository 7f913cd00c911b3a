"""The worlds, familiar and novel, with no learner in sight; importing them registers their Gymnasium ids."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ModuleNotFoundError):  # the exact worlds work without Gymnasium
    import cautious_paper.worlds.envs  # noqa: F401
