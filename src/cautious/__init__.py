"""Learning to be cautious: policies that act as usual in familiar states and carefully in novel ones.

    familiar data --fit--> belief --solve (k-of-N)--> policy --act--> novel states

Public names are imported on first use, so that `import cautious` is quick.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "KofN": "cautious.risk",
    "CVaR": "cautious.risk",
    "WorstCase": "cautious.risk",
    "Mean": "cautious.risk",
    "MeanCVaR": "cautious.risk",
    "RiskMeasure": "cautious.risk",
    "TabularMDP": "cautious.mdp.tabular",
    "UncertainMDP": "cautious.mdp.uncertain",
    "UncertainSolution": "cautious.solvers.uncertain.solution",
    "PolicyMixture": "cautious.solvers.uncertain.solution",
    "Solution": "cautious.solvers.solution",
    "Certificate": "cautious.solvers.certificate",
    "RewardEnsemble": "cautious.beliefs.ensemble",
    "fit_ensemble": "cautious.beliefs.fit",
    "CautiousPolicy": "cautious.policy.policy",
    "Decision": "cautious.policy.decision",
    "FallbackRule": "cautious.policy.fallback",
    "calibrate": "cautious.policy.calibration",
    "Calibration": "cautious.policy.calibration",
    "solve_bandit": "cautious.solvers.solve",
    "solve_mdp": "cautious.solvers.solve",
    "optimal_policy": "cautious.solvers.optimal",
    "KofNPPO": "cautious.rl.kofn_ppo",
    "driving_world": "cautious_paper.worlds.driving",
    "DrivingWorld": "cautious_paper.worlds.driving",
    "DiscretiseObservation": "cautious.mdp.discretize",
    "solve_exact": "cautious.solvers.exact",
    "CautiousError": "cautious.errors",
    "InvalidInputError": "cautious.errors",
}

_EXTRAS = {"KofNPPO"}
"""Names that need a package which need not be installed: `from cautious import *` leaves them out."""

__all__ = [*(name for name in _HOMES if name not in _EXTRAS), "__version__"]

if TYPE_CHECKING:
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.beliefs.fit import fit_ensemble
    from cautious.errors import CautiousError, InvalidInputError
    from cautious.mdp.discretize import DiscretiseObservation
    from cautious.mdp.tabular import TabularMDP
    from cautious.mdp.uncertain import UncertainMDP
    from cautious.policy.calibration import Calibration, calibrate
    from cautious.policy.decision import Decision
    from cautious.policy.fallback import FallbackRule
    from cautious.policy.policy import CautiousPolicy
    from cautious.risk import CVaR, KofN, Mean, MeanCVaR, RiskMeasure, WorstCase
    from cautious.rl.kofn_ppo import KofNPPO
    from cautious.solvers.certificate import Certificate
    from cautious.solvers.exact import solve_exact
    from cautious.solvers.optimal import optimal_policy
    from cautious.solvers.solution import Solution
    from cautious.solvers.solve import solve_bandit, solve_mdp
    from cautious.solvers.uncertain.solution import PolicyMixture, UncertainSolution
    from cautious_paper.worlds.driving import DrivingWorld, driving_world

with contextlib.suppress(ModuleNotFoundError):  # the core works without Gymnasium
    import cautious_paper.worlds.envs


def __getattr__(name: str) -> Any:
    """Load a public name from its home on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'cautious' has no attribute {name!r}; it offers {', '.join(sorted(_HOMES))}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_EXTRAS])
