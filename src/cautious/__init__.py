"""Learning to be cautious: policies that act as usual in familiar states and carefully in novel ones.

    familiar data --fit--> belief --solve (k-of-N)--> policy --act--> novel states

This file has every public name; what is not here is private. A name is imported on first use, so that `import cautious` is
quick. `KofNPPO` and what stands beside it need the extra `rl`. `DrivingWorld` and `driving_world` come from `cautious_paper`,
the reproduction of the paper.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from cautious.moved import keep_old_names

__version__ = "0.1.0"

_NAMES = {
    # How cautious: a level
    "cautious.risk": ("KofN", "CVaR", "WorstCase", "Mean", "MeanCVaR", "RiskMeasure"),
    # Worlds
    "cautious.mdp.tabular": ("TabularMDP",),
    "cautious.mdp.uncertain": ("UncertainMDP",),
    "cautious.mdp.models": ("Models", "resampled_models", "dirichlet_models", "models_of_parameter", "read_models"),
    "cautious.mdp.coverage": ("Coverage",),
    "cautious.mdp.discretize": ("DiscretizeObservation",),
    "cautious_paper.worlds.driving": ("driving_world", "DrivingWorld"),
    # Beliefs
    "cautious.beliefs.fit": ("fit_ensemble", "Learner"),
    "cautious.beliefs.ensemble": ("RewardEnsemble",),
    "cautious.beliefs.models": ("RewardModels",),
    "cautious.beliefs.belief": ("Belief", "TableBelief"),
    "cautious.beliefs.networks.base": ("Network",),
    "cautious.beliefs.disagreement": ("disagreement", "FamiliarDisagreement"),
    "cautious.beliefs.diagnostics": ("Diagnosis", "BeliefWarning"),
    "cautious.beliefs.training.estimate": ("LongTrainingWarning",),
    "cautious.tables.learn": ("read_log", "TrainingData", "TableWarning"),
    "cautious.executors": ("Executor", "open_executor"),
    # Solvers
    "cautious.solvers.solve": ("solve_bandit", "solve_mdp"),
    "cautious.solvers.exact": ("solve_exact",),
    "cautious.solvers.optimal": ("optimal_policy", "OptimalPolicy"),
    "cautious.solvers.solution": ("Solution", "Trace"),
    "cautious.solvers.certificate": ("Certificate",),
    "cautious.solvers.uncertain.solution": ("UncertainSolution", "UncertainCertificate", "PolicyMixture"),
    "cautious.solvers.uncertain.memory": ("MemoryMixture",),
    "cautious.types": ("Regime", "Sampling", "Update", "Method", "Objective"),
    # Policies
    "cautious.policy.policy": ("CautiousPolicy",),
    "cautious.policy.decision": ("Decision",),
    "cautious.policy.explanation": ("Explanation",),
    "cautious.policy.monitor": ("DepartureMonitor", "departure_limit"),
    "cautious.policy.fallback": ("FallbackRule",),
    "cautious.policy.calibration": ("calibrate", "Calibration", "CalibrationWarning"),
    "cautious.ops.rates": ("smallest_rate",),
    # What others do, and how they compare
    "cautious.baselines.comparing": ("compare", "Problem"),
    "cautious.baselines.evaluating": ("evaluate",),
    "cautious.baselines.evaluation": ("Evaluation",),
    # Learning from a simulator
    "cautious.rl.kofn_ppo": ("KofNPPO",),
    "cautious.rl.scenario_ppo": ("ScenarioPPO",),
    "cautious.rl.scenarios": ("ScenarioEnv",),
    "cautious.rl.history": ("StepHistory",),
    "cautious.rl.belief": ("StepRewards",),
    "cautious.rl.pairs": ("rewards_of_pairs", "rewards_of_next_states"),
    "cautious.rl.recorder": ("Steps",),
    "cautious.rl.mixture": ("Mixture", "RankedMixture", "LearnedMixture"),
    "cautious.rl.value": ("Value",),
    "cautious.rl.environments": ("VectorEnvAdapter",),
    "cautious.rl.random_stops": ("RandomStops",),
    # Errors and warnings
    "cautious.errors": (
        "CautiousError",
        "InvalidInputError",
        "BadFileError",
        "MissingFileError",
        "MissingPackageError",
        "FolderInUseError",
        "WriteError",
        "SolverError",
        "ClusterError",
        "ClusterWarning",
        "CoverageWarning",
        "FewModelsWarning",
        "ConvergenceWarning",
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

_MODULES = ("baselines", "estimator")
"""Modules whose names are public as they are: `cautious.baselines.mean_minus_std`."""

_EXTRAS = {name for name, module in _HOMES.items() if module.startswith("cautious.rl.")}
"""Names that need a package which need not be installed: `from cautious import *` leaves them out."""

_RENAMED = {"DiscretiseObservation": "DiscretizeObservation", "FamiliarSpread": "FamiliarDisagreement"}

__all__ = [*(name for name in _HOMES if name not in _EXTRAS), "__version__"]

if TYPE_CHECKING:
    from cautious import baselines as baselines
    from cautious.baselines.comparing import Problem, compare
    from cautious.baselines.evaluating import evaluate
    from cautious.baselines.evaluation import Evaluation
    from cautious.beliefs.belief import Belief, TableBelief
    from cautious.beliefs.diagnostics import BeliefWarning, Diagnosis
    from cautious.beliefs.disagreement import FamiliarDisagreement, disagreement
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.beliefs.fit import Learner, fit_ensemble
    from cautious.beliefs.models import RewardModels
    from cautious.beliefs.networks.base import Network
    from cautious.beliefs.training.estimate import LongTrainingWarning
    from cautious.errors import (
        BadFileError,
        CautiousError,
        ClusterError,
        ClusterWarning,
        ConvergenceWarning,
        CoverageWarning,
        FewModelsWarning,
        FolderInUseError,
        InvalidInputError,
        MissingFileError,
        MissingPackageError,
        SolverError,
        WriteError,
    )
    from cautious.executors import Executor, open_executor
    from cautious.mdp.coverage import Coverage
    from cautious.mdp.discretize import DiscretizeObservation
    from cautious.mdp.models import Models, dirichlet_models, models_of_parameter, read_models, resampled_models
    from cautious.mdp.tabular import TabularMDP
    from cautious.mdp.uncertain import UncertainMDP
    from cautious.ops.rates import smallest_rate
    from cautious.policy.calibration import Calibration, CalibrationWarning, calibrate
    from cautious.policy.decision import Decision
    from cautious.policy.explanation import Explanation
    from cautious.policy.fallback import FallbackRule
    from cautious.policy.monitor import DepartureMonitor, departure_limit
    from cautious.policy.policy import CautiousPolicy
    from cautious.risk import CVaR, KofN, Mean, MeanCVaR, RiskMeasure, WorstCase
    from cautious.rl.belief import StepRewards
    from cautious.rl.environments import VectorEnvAdapter
    from cautious.rl.history import StepHistory
    from cautious.rl.kofn_ppo import KofNPPO
    from cautious.rl.mixture import LearnedMixture, Mixture, RankedMixture
    from cautious.rl.pairs import rewards_of_next_states, rewards_of_pairs
    from cautious.rl.random_stops import RandomStops
    from cautious.rl.recorder import Steps
    from cautious.rl.scenario_ppo import ScenarioPPO
    from cautious.rl.scenarios import ScenarioEnv
    from cautious.rl.value import Value
    from cautious.solvers.certificate import Certificate
    from cautious.solvers.exact import solve_exact
    from cautious.solvers.optimal import OptimalPolicy, optimal_policy
    from cautious.solvers.solution import Solution, Trace
    from cautious.solvers.solve import solve_bandit, solve_mdp
    from cautious.solvers.uncertain.memory import MemoryMixture
    from cautious.solvers.uncertain.solution import PolicyMixture, UncertainCertificate, UncertainSolution
    from cautious.tables.learn import TableWarning, TrainingData, read_log
    from cautious.types import Method, Objective, Regime, Sampling, Update

keep_old_names()


def __getattr__(name: str) -> Any:
    """Load a public name from its home on first use (PEP 562)."""
    if name in _RENAMED:
        warnings.warn(f"cautious.{name} is now called {_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])
    if name in _MODULES:
        return importlib.import_module(f"cautious.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'cautious' has no attribute {name!r}; it offers {', '.join(sorted(_HOMES))}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_EXTRAS, *_MODULES])
