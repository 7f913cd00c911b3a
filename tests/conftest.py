"""Shared fixtures: one thread, so that two test processes share two cores well, and seeded random problems.

Whoever starts the tests may have a narrow terminal, another language, no home, or Ctrl-C switched off: what is tested is the
package and not that, so tests, and the processes that they start, have surroundings of their own.
"""

from __future__ import annotations

import functools
import os
import signal
import tempfile
from collections.abc import Callable

import hypothesis
import pytest
import torch
from torch import Tensor

from cautious import TabularMDP
from cautious_paper.experiments.driving.driving_experiment import experiment_at, run_driving
from cautious_paper.experiments.images.image_experiment import run_images
from cautious_paper.experiments.images.settings import image_experiment_at
from cautious_paper.experiments.store import Store


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported that reads the environment: the width of an unknown terminal, no colours, a home, Ctrl-C."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        os.environ.pop(name, None)
    if not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ["HOME"] = tempfile.mkdtemp(prefix="home-of-tests-")
    if not os.access(config.rootpath, os.W_OK):
        hypothesis.settings.register_profile(
            "read-only", database=None
        )  # it would keep failing examples beside the tests
        hypothesis.settings.load_profile("read-only")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20251)


RandomProblem = Callable[..., tuple[TabularMDP, Tensor]]


@pytest.fixture
def random_problem(generator: torch.Generator) -> RandomProblem:
    """A dense random MDP and M random reward functions."""

    def make(num_states: int = 6, num_actions: int = 3, num_models: int = 12, discount: float = 0.9):
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        transitions = torch.softmax(2 * normal(num_states, num_actions, num_states), dim=-1)
        mdp = TabularMDP(transitions, torch.softmax(normal(num_states), dim=-1), discount)
        return mdp, normal(num_models, num_states, num_actions)

    return make


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Store]:
    """The smoke run of a task on the embedded data, made when first asked for and shared: copy it to change it."""

    @functools.cache
    def run(task: str) -> Store:
        if task == "driving":
            return run_driving(experiment_at("smoke"), tmp_path_factory.mktemp(task))
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("CAUTIOUS_DATA", raising=False)
            patch.setenv("CAUTIOUS_CACHE", str(tmp_path_factory.mktemp("cache")))
            return run_images(image_experiment_at(task, "smoke"), tmp_path_factory.mktemp(task))

    return run
