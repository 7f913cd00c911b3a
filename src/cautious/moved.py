"""Modules of earlier versions under their old names.

The reproduction of the paper became a package of its own, `cautious_paper`, and some rooms of the library have other names.
Programs that import `cautious.worlds.driving` or `cautious.experiments` run as before: an old name gives the module that has
moved, when it is asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "cautious.worlds.mdp": "cautious.mdp.tabular",
    "cautious.worlds.mdp_files": "cautious.mdp.files",
    "cautious.worlds.coverage": "cautious.mdp.coverage",
    "cautious.worlds.from_gymnasium": "cautious.mdp.from_gymnasium",
    "cautious.worlds.envs.discretise": "cautious.mdp.discretize",
    "cautious.worlds.envs.random_stops": "cautious.rl.random_stops",
    "cautious.worlds": "cautious_paper.worlds",
    "cautious.ops.risk": "cautious.risk",
    "cautious.beliefs.datasets.array_files": "cautious.tables.arrays",
    "cautious.beliefs.datasets.csv": "cautious.tables.files",
    "cautious.beliefs.datasets.learn_table": "cautious.tables.learn",
    "cautious.beliefs.datasets.observations": "cautious.tables.arrays",
    "cautious.beliefs.datasets.pictures": "cautious.tables.arrays",
    "cautious.beliefs.datasets.training_data": "cautious.tables.learn",
    "cautious.beliefs.datasets": "cautious.tables",
    "cautious.beliefs.networks.image": "cautious_paper.networks.image",
    "cautious.beliefs.networks.driving": "cautious_paper.networks.driving",
    "cautious.beliefs.training.problems": "cautious.beliefs.training.state",
    "cautious.beliefs.table_belief": "cautious.beliefs.belief",
    "cautious.beliefs.familiar_spread": "cautious.beliefs.disagreement",
    "cautious.beliefs.terrains": "cautious_paper.beliefs.terrains",
    "cautious.beliefs.wide_driving": "cautious_paper.beliefs.wide_driving",
    "cautious.policy.bad_rows": "cautious.policy.rows",
    "cautious.policy.blocks": "cautious.policy.states",
    "cautious.evaluation.calibration": "cautious.policy.calibration",
    "cautious.evaluation": "cautious_paper.evaluation",
    "cautious.experiments.executors.executor": "cautious.executors",
    "cautious.experiments.executors.ray_executor": "cautious.ray",
    "cautious.experiments.executors": "cautious_paper.experiments",
    "cautious.experiments": "cautious_paper.experiments",
    "cautious.benchmarking": "cautious_paper.timing",
    "cautious.play": "cautious_paper.play",
    "cautious.report": "cautious_paper.report",
}
"""Where modules are now; a module below one of these is below its new place."""


def new_name(name: str) -> str | None:
    """Where a module is now, if it moved.

    >>> new_name("cautious.worlds.driving"), new_name("cautious.solvers.cfr")
    ('cautious_paper.worlds.driving', None)
    """
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        place = MOVED.get(".".join(parts[:length]))
        if place is not None:
            return ".".join([place, *parts[length:]])
    return None


class _Alias(Loader):
    """Gives the module of another name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__  # the import system puts that of the old name in its place
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class _Finder(MetaPathFinder):
    """Finds modules that moved."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        place = new_name(name) if name.startswith("cautious.") else None
        return None if place is None else ModuleSpec(name, _Alias(place), is_package=True)


def keep_old_names() -> None:
    """Let old names work from here on, once for each process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
