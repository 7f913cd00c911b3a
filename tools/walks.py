"""Which files Python goes through for four things that a newcomer follows first: an upper bound on what there is to read.

python tools/walks.py [NAME ...]     all walks, or those named (solve_mdp, decide, fit_ensemble, reproduce)

For each walk it prints the files of the packages in which some function was executed, and apart from them those that every walk
goes through without being about it: errors, types, validation, files on disk, progress, threads, seeds. Compiled functions
count with the Python functions that call them. To compare two versions, run this file with PYTHONPATH set to each.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import cautious

SOURCE = Path(cautious.__file__).parents[1]
PACKAGES = ("cautious", "cautious_paper")
SUPPORT = (
    *("errors.py", "types.py", "validation.py", "progress.py", "parallel.py", "seeding.py", "__init__.py", "moved.py"),
    *("io/arrays.py", "io/atomic.py", "io/content_names.py", "beliefs/fixed_shapes.py"),
)


@contextlib.contextmanager
def traced() -> Iterator[set[str]]:
    """The files of the packages in which functions are called meanwhile, in any thread."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        # Modules and bodies of classes run once, when they are imported: only functions are optimised code.
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(f"{SOURCE}/"):
            file = Path(code.co_filename).relative_to(SOURCE)
            if file.parts[0] in PACKAGES:
                files.add(file.as_posix())

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def rows(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [S, 3] and what two actions pay there [S, 2]."""
    states = np.random.default_rng(0).normal(size=(count, 3))
    return states, np.stack([states[:, 0], np.full(count, 0.2)], axis=1)


def fit() -> cautious.RewardEnsemble:
    """A tiny belief over vectors."""
    return cautious.fit_ensemble(*rows(), num_models=4, num_epochs=2, progress=False)


def solve_mdp() -> Callable[[], object]:
    """One iteration of k-of-N CFR in an MDP, as the paper samples."""
    rng = np.random.default_rng(0)
    mdp = cautious.TabularMDP(rng.dirichlet(np.ones(4), (4, 2)), np.full(4, 0.25), 0.9)
    rewards = rng.normal(size=(12, 4, 2))
    return lambda: cautious.solve_mdp(mdp, rewards, "1-of-3", num_iterations=1)


def decide() -> Callable[[], object]:
    """One call of `CautiousPolicy.decide`, with a trained belief over vectors."""
    policy = cautious.CautiousPolicy(fit(), "1-of-3")
    states = 5 * rows()[0]  # far from the data, so that models disagree and games are played
    return lambda: policy.decide(states)


def fit_ensemble() -> Callable[[], object]:
    """`fit_ensemble` on vectors."""
    return fit


def reproduce() -> Callable[[], object]:
    """`cautious reproduce ask-for-help --scale smoke`."""
    from cautious.cli.main import main

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            main(["reproduce", "ask-for-help", "--scale", "smoke", "--out", folder])

    return run


WALKS = {walk.__name__: walk for walk in (solve_mdp, decide, fit_ensemble, reproduce)}


def files_of(prepare: Callable[[], Callable[[], object]]) -> set[str]:
    """What a walk goes through, in its second run: in the first one modules are imported and caches filled."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        walk = prepare()
        walk()
        with traced() as files:
            walk()
    return files


def main() -> None:
    """As the module says."""
    for name in sys.argv[1:] or WALKS:
        if name not in WALKS:
            sys.exit(__doc__)
        files = files_of(WALKS[name])
        support = {file for file in files if file.removeprefix("cautious/") in SUPPORT}
        print(f"{name}: {len(files - support)} files, and {len(support)} that every walk goes through")
        print("  " + "\n  ".join(sorted(files - support)))
        print(f"  ({', '.join(sorted(support))})\n")


if __name__ == "__main__":
    main()
