"""Scores on the benchmark: the methods that come with the package, runs of any method, the reference scores and the table."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from cautious import baselines
from cautious.baselines.comparing import Method, compare
from cautious.errors import FewModelsWarning, InvalidInputError
from cautious.executors import Executor
from cautious.io.atomic import atomic_write
from cautious.progress import Progress
from cautious.tables.frames import pandas_for
from cautious_paper.benchmark.registry import IDS, problems

if TYPE_CHECKING:
    import pandas

LEVEL = "1-of-20"
REFERENCE = "reference.csv"
NUM_SEEDS = 10
"""Of the reference scores; seeds 0 to 9."""
DOUBTFUL = ("shop-v1", "slippery-lake-v1")
"""Problems whose dynamics are in doubt."""
METRICS = ("return", "worst_tenth", "tail", "shortfall", "departure")
TITLES = {
    "return": "return in what is true, mean over the truths",
    "worst_tenth": "return in the worst tenth of the truths",
    "tail": f"{LEVEL} of the models' returns",
    "shortfall": "how much higher any policy's tail may be (certificate)",
    "departure": "share of its steps in the familiar world that no ordinary policy takes",
}


def novelty_penalty(world: Any, rewards: Any, novelty: Any, novelty_weight: float) -> Tensor:
    """`baselines.novelty_penalty` with a weight that does not hang on the states at hand."""
    return baselines.novelty_penalty(world, rewards, novelty=novelty, weight=novelty_weight)


def methods() -> dict[str, Method]:
    """Name -> method, for the problems whose rewards are in doubt: every rule of `cautious.baselines` at one setting."""
    return {
        "k_of_n": partial(baselines.k_of_n, level=LEVEL),
        "k_of_n 10-of-20": partial(baselines.k_of_n, level="10-of-20"),
        "k_of_n_each_state": partial(baselines.k_of_n_each_state, level=LEVEL),
        "risk_neutral": baselines.risk_neutral,
        "single_model": baselines.single_model,
        "thompson_sampling": baselines.thompson_sampling,
        "mean_minus_std": baselines.mean_minus_std,
        "one_step_ranking": partial(baselines.one_step_ranking, level=LEVEL),
        "worst_case": baselines.worst_case,
        "broil": baselines.broil,
        "novelty_penalty": novelty_penalty,
        "fixed_fallback": baselines.fixed_fallback,
    }


FOR_DOUBTFUL = ("k_of_n", "k_of_n 10-of-20", "risk_neutral", "single_model", "thompson_sampling", "worst_case", "broil")
"""Methods that know what to do with doubtful dynamics."""


def run(
    methods_of_yours: Mapping[str, Method] | None = None,
    *,
    ids: Iterable[str] = IDS,
    split: str = "novel",
    seeds: int | Iterable[int] = NUM_SEEDS,
    out: Path | str | None = None,
    executor: Executor | None = None,
    progress: bool | Progress = True,
) -> pandas.DataFrame:
    """Scores of methods on problems of the benchmark: `cautious.compare` at the benchmark's level.

    Args:
        methods_of_yours: Name -> function of (world, rewards), as `compare` takes them. By default those that come with the
            package; where dynamics are in doubt, those of them that can.
        ids: Names of problems; all of them by default.
        split: "novel" or "familiar".
        seeds: Number of seeds, or the seeds; the reference scores have ten.
        out: Folder that keeps each result; the same call resumes from them.
        executor: Where the work runs; by default this process.
        progress: Show it, or a function of (done, total).

    Returns:
        The frame of `compare`.
    """
    wanted = list(ids)
    ours = methods()
    groups = [
        ([id for id in wanted if id not in DOUBTFUL], ours),
        ([id for id in wanted if id in DOUBTFUL], {name: ours[name] for name in FOR_DOUBTFUL}),
    ]
    if not wanted:
        raise InvalidInputError(f"ids: name at least one problem; there are {', '.join(IDS)}.")
    frames = []
    numbers = seeds if isinstance(seeds, int) else list(seeds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewModelsWarning)  # sixty models are what the problems have
        for named, chosen in groups:
            if named:
                frames.append(
                    compare(
                        problems(named, split),
                        chosen if methods_of_yours is None else methods_of_yours,
                        numbers,
                        level=LEVEL,
                        out=out,
                        executor=executor,
                        progress=progress,
                    )
                )
    return pandas_for("the benchmark").concat(frames, ignore_index=True)


def reference() -> pandas.DataFrame:
    """The reference scores: one row per split, problem, method and metric, with means and 95 % intervals over the seeds.

    Differences are those to `k_of_n` on the same seeds.
    """
    path = Path(str(files("cautious_paper.benchmark") / REFERENCE))
    return pandas_for("the benchmark").read_csv(path)


def table(frame: pandas.DataFrame, metric: str = "return") -> str:
    """A metric of every method on every problem, as a table in Markdown: its mean over the seeds.

    (+) or (-) behind it: above or below the frame's first method by more than chance, which is that the 95 % interval of the
    difference on the same seeds leaves out zero.

    >>> rows = reference()
    >>> print(table(rows[(rows.split == "novel") & (rows.problem == "cliff-v1")], "return").splitlines()[0])
    | method | cliff-v1 |
    """
    if metric not in (*METRICS, "seconds"):
        raise InvalidInputError(f"metric={metric!r}: choose one of {', '.join(METRICS)}.")
    chosen = frame[frame.metric == metric]
    named = [id for id in dict.fromkeys(frame.problem) if (chosen.problem == id).any()]
    lines = ["| " + " | ".join(["method", *named]) + " |", "|---|" + "---:|" * len(named)]
    found = chosen.set_index(["method", "problem"])
    for method in dict.fromkeys(chosen.method):
        cells = [_cell(found.loc[(method, id)]) if (method, id) in found.index else "" for id in named]
        lines.append("| " + " | ".join([str(method), *cells]) + " |")
    return "\n".join(lines)


def _cell(row: Any) -> str:
    mark = (
        " (+)" if row.difference_low > 0 else " (-)" if row.difference_high < 0 else ""
    )  # of one seed nothing is known
    return f"{row['mean']:.3f}{mark}"


def report(frames: Mapping[str, pandas.DataFrame]) -> Iterator[str]:
    """A title and a table for each metric, line by line: of the novel split, and the return in the familiar one."""
    for metric in METRICS:
        if (frames["novel"].metric == metric).any():
            yield from ("", TITLES[metric], "", *table(frames["novel"], metric).splitlines())
    yield from ("", "return in the familiar split", "", *table(frames["familiar"], "return").splitlines())


def write(frames: Mapping[str, pandas.DataFrame], path: Path) -> None:
    """The frames of both splits as one file, without times, to five digits: the form of the reference scores."""
    parts = [frame[frame.metric != "seconds"].assign(split=split) for split, frame in frames.items()]
    columns = ["split", *(name for name in parts[0].columns if name != "split")]
    text = pandas_for("the benchmark").concat(parts)[columns].to_csv(index=False, float_format="%.5g")
    atomic_write(path, lambda target: target.write_text(text, encoding="utf-8"))
