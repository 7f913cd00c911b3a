"""Claims DR1 to DR4 about driving, TH1 and TH2 about theory, and CV1 and CO1 of a driving run."""

from __future__ import annotations

from typing import Any

import scipy.stats
import torch

from cautious.ops.bounds import cumulative_regret_bound, optimality_gap
from cautious.risk import KofN
from cautious_paper.experiments.driving.driving_experiment import stage_name
from cautious_paper.experiments.store import Store
from cautious_paper.report.claims.rules import NOT_JUDGED, RESUMED, ClaimResult, levels_off, trained_on
from cautious_paper.report.paper import DRIVING_MODEL_EPOCH, DRIVING_SOLVE

FULL_SPEED = 2.9
"""Any policy's normalised speed is at most 2.9404 from a standing start."""


def driving_ledger(store: Store, beside: Store | None = None) -> list[ClaimResult]:
    """Claims DR1 to DR4, CV1, TH1, TH2 and CO1 at the experiment's default appearance probability.

    Args:
        store: The run.
        beside: Not used: a driving run is compared with no other.
    """
    stage = stage_name(store.manifest["settings"]["default_probability"])
    if not store.has(stage):
        return [ClaimResult("DR1-DR4", "cautious driving", None, f"no stage {stage} in this run")]
    numbers, arrays = store.numbers(stage), store.arrays(stage)
    return [
        *(_falls(claim, says, numbers, name) for claim, says, name in FALLING),
        *_full_speed(numbers),
        levels_off({"": arrays["queue_sampled_value"]}),
        _regret_under_bound(numbers, arrays["queue_regret"]),
        _gap_under_bound(numbers, arrays["queue_exact_value"]),
        _cost(store, numbers),
    ]


FALLING = (
    ("DR1", "more robust policies drive slower in the novel world", "speed"),
    ("DR2", "they hit obstacles less often", "collisions"),
    ("DR3", "and at lower speed", "collision_speed"),
)


def _falls(claim: str, says: str, numbers: dict[str, Any], name: str) -> ClaimResult:
    """Rank correlation of k with the mean over runs at least 0.9, and the ends apart by more than the spread of runs."""
    values = torch.tensor(numbers["statistics"]["queue"][name], dtype=torch.float64)  # [L, R], most cautious first
    ks = [KofN.parse(level).k for level in numbers["levels"]]
    means = values.mean(dim=1)
    if len(ks) < 2:
        return ClaimResult(
            claim, says, None, f"a single level, {numbers['levels'][0]}: {float(means[0]):.3f}", NOT_JUDGED
        )
    same = bool((means == means[0]).all())  # then there is no order to correlate with
    correlation = 0.0 if same else float(scipy.stats.spearmanr(ks, means.numpy()).statistic)
    cautious, ordinary = values[ks.index(min(ks))], values[ks.index(max(ks))]
    apart = float(ordinary.min() - cautious.max())
    listed = ", ".join(f"{float(value):.3f}" for value in means)
    text = f"k = {', '.join(map(str, ks))}: {listed}; rank correlation {correlation:.2f}; runs apart by {apart:.3f}"
    return ClaimResult(claim, says, correlation >= 0.9 and apart > 0, text)


def _full_speed(numbers: dict[str, Any]) -> list[ClaimResult]:
    """Both readings of the baseline that the paper leaves undefined for driving (deviation D7)."""
    ordinary = numbers["levels"][-1]
    slowest = min(numbers["statistics"]["queue"]["speed"][-1])
    of_mean = numbers["statistics"]["mean"]["speed"]
    level = KofN.parse(ordinary)
    single = sorted(numbers["statistics"]["optim"]["speed"])
    average, fast = sum(single) / len(single), sum(speed >= FULL_SPEED for speed in single)
    return [
        ClaimResult(
            "DR4",
            f"{ordinary} and optim drive at full speed (at least {FULL_SPEED} of 2.9404); optim of the mean reward",
            min(slowest, of_mean) >= FULL_SPEED if level.k == level.n else None,
            f"{ordinary} {slowest:.3f} at least; optimum of the mean reward {of_mean:.3f}",
            NOT_JUDGED,
        ),
        ClaimResult(
            "DR4, each network",
            "the same, optim being each single network's own optimum, averaged",
            average >= FULL_SPEED,
            f"{average:.3f} on average, median {single[len(single) // 2]:.3f}, {fast} of {len(single)} at full speed",
        ),
    ]


def _regret_under_bound(numbers: dict[str, Any], regret: torch.Tensor) -> ClaimResult:
    bounds = [
        cumulative_regret_bound(numbers["reward_bound"], numbers["num_actions"], t)
        for t in range(1, regret.shape[-1] + 1)
    ]
    share = float((regret / torch.tensor(bounds)).max())
    says = "regret stays under the bound of Theorems 1 and 2, every prefix"
    return ClaimResult(
        "TH1", says, share <= 1, f"at most {100 * share:.1f} % of C^T, over all levels, runs and prefixes"
    )


def _gap_under_bound(numbers: dict[str, Any], exact_value: torch.Tensor) -> ClaimResult:
    """The measured gap is taken against a bound on the optimum, so that it can only be too large."""
    upper = torch.tensor(numbers["certificates"]["queue"]["best"]["upper"], dtype=torch.float64)  # [L, R]
    measured = float((upper - exact_value.amax(dim=-1)).max())
    num_iterations = exact_value.shape[-1]
    bound = optimality_gap(numbers["reward_bound"], numbers["num_actions"], num_iterations, numbers["discount"], 0.05)
    text = f"best iterate at most {measured:.4f} below the optimum; Theorem 3 allows {bound:.1f} (p = 0.05)"
    return ClaimResult("TH2", "Theorem 3's gap bounds the measured gap", measured <= bound, text)


def _cost(store: Store, numbers: dict[str, Any]) -> ClaimResult:
    """Seconds per model-epoch and seconds per solve, against 25 minutes per model and three minutes for 100 iterations."""
    says = "833 CPU-hours for driving models, 3 minutes for 100 iterations"
    settings = store.manifest["settings"]["training"]
    if not store.has("belief") or "seconds" not in store.numbers("belief"):
        return ClaimResult("CO1", says, None, "training was not timed: it was not part of this run")
    if store.numbers("belief").get("resumed"):
        return ClaimResult("CO1", says, None, RESUMED, NOT_JUDGED)
    training = store.numbers("belief")["seconds"] / (settings["num_models"] * settings["num_epochs"])
    solving = numbers["solve_seconds"]["queue"] / numbers["solve_seconds"]["members"]
    solving *= 100 / store.manifest["settings"]["num_iterations"]
    hours = training * 2000 * 51_200 / 3600
    whole = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"
    text = (
        f"{1e3 * training:.3g} ms per model and epoch ({DRIVING_MODEL_EPOCH / training:,.0f} x faster: {whole} for all"
    )
    text += f" 2,000), {solving:.2f} s for 100 iterations ({DRIVING_SOLVE / solving:.0f} x faster)"
    text += f"; trained on {trained_on(store, 'belief')}, solved on {numbers.get('hardware', 'hardware not recorded')}"
    return ClaimResult("CO1", says, training < DRIVING_MODEL_EPOCH and solving < DRIVING_SOLVE, text)
