"""ICU-Sepsis: survival of policies learned from logs of the clinicians' policy, with doubts that all rare actions share.

python -m benchmarks.icu_sepsis [--episodes 300 1000 3000] [--seeds 3] [--models 40]      (pip install icu-sepsis)

716 states and 25 treatments; an episode ends in survival (pays 1) or death (0). The clinicians' policy is an action of the
world, number 25: its outcomes are those of all logged steps in a state, so that it is much better known than any single
treatment.

Model m is a resample of whole episodes, in which every pair also has KAPPA made-up steps: a share u_m of them do what the
clinicians' action does there, the rest lead to death. u_m is one number for all pairs, drawn evenly from [0, 1]: nobody knows
how good rarely tried treatments are, and where one is worse than it looks, others are, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from importlib.resources import files

import numpy as np
import scipy.sparse

from cautious import CVaR, UncertainMDP
from cautious.risk import weights_by_rank
from cautious.seeding import make_rng
from cautious.solvers.uncertain.oracle import DoubleOracle
from cautious.solvers.uncertain.problem import UncertainProblem
from cautious_paper.experiments.store import provenance_line

DEATH, SURVIVAL, LIVE, NUM_STATES, TREATMENTS = 713, 714, 713, 716, 25
CLINICIANS = TREATMENTS
STEPS, LONGEST = 30, 60
KAPPA, LEVEL, ROUNDS = 5.0, CVaR(0.25), 8
Steps = list[np.ndarray]
"""Episodes, each [steps, 3]: state, treatment, next state."""


class Hospital:
    """The published dynamics, and the clinicians' policy."""

    def __init__(self) -> None:
        """Read them from the package icu-sepsis."""
        assets = files("icu_sepsis") / "envs" / "assets"
        with (assets / "dynamics.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            chance, start, policy = arrays["tx_mat"], arrays["d_0"], arrays["expert_policy"]
        self.start = start / start.sum()
        self.chance = chance / np.maximum(chance.sum(axis=-1, keepdims=True), 1e-12)
        lines = (assets / "admissible_actions.txt").read_text().split("\n")[1 : NUM_STATES + 1]
        self.admissible = np.zeros((NUM_STATES, TREATMENTS), bool)
        for state, line in enumerate(lines):
            self.admissible[state, list(map(int, line.split())) or [0]] = True
        share = np.where(self.admissible, policy + 1e-9, 0)
        self.policy = share / share.sum(axis=-1, keepdims=True)
        self.clinicians = np.einsum("sa,sat->st", self.policy, self.chance)

    def log(self, num_episodes: int, rng: np.random.Generator) -> Steps:
        """Episodes of the clinicians' policy."""
        episodes = []
        for _ in range(num_episodes):
            steps: list[tuple[int, int, int]] = []
            state = rng.choice(NUM_STATES, p=self.start)
            while state < LIVE and len(steps) < LONGEST:
                action = rng.choice(TREATMENTS, p=self.policy[state])
                following = rng.choice(NUM_STATES, p=self.chance[state, action])
                steps.append((state, action, following))
                state = following
            episodes.append(np.array(steps, np.int64).reshape(-1, 3))
        return episodes

    def rows(self, counts: np.ndarray, by_state: np.ndarray, kappa: float, share: float) -> np.ndarray:
        """One model, [S, A + 1, S]: counts [S, A, S] beside made-up steps, of which a `share` do what clinicians do [S, S]."""
        tried = by_state.sum(axis=-1, keepdims=True)
        usual = np.where(tried > 0, by_state / np.maximum(tried, 1), np.eye(NUM_STATES)[DEATH])
        made_up = share * usual
        made_up[:, DEATH] += 1 - share
        treated = (counts + kappa * made_up[:, None]) / (counts.sum(axis=-1, keepdims=True) + kappa)
        treated = np.where(self.admissible[..., None], treated, usual[:, None])  # no treatment of its own
        rows = np.concatenate([treated, usual[:, None]], axis=1)
        rows[LIVE:] = np.eye(NUM_STATES)[NUM_STATES - 1]
        return rows

    def truth(self) -> np.ndarray:
        """The true world with the clinicians' action, [S, A + 1, S]."""
        treated = np.where(self.admissible[..., None], self.chance, self.clinicians[:, None])
        rows = np.concatenate([treated, self.clinicians[:, None]], axis=1)
        rows[LIVE:] = np.eye(NUM_STATES)[NUM_STATES - 1]
        return rows


def counted(episodes: Steps, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts [S, A, S] and [S, S] of a log whose episodes count `times` [E]."""
    steps, weight = np.concatenate(episodes), np.repeat(times, [len(each) for each in episodes])
    counts = np.zeros((NUM_STATES, TREATMENTS, NUM_STATES))
    np.add.at(counts, tuple(steps.T), weight)
    return counts, counts.sum(axis=1)


def problem_of(models: Iterable[np.ndarray], start: np.ndarray) -> UncertainProblem:
    """The problem of some models [S, A + 1, S]: survival within `STEPS` steps."""
    rows = [scipy.sparse.csr_array(model.reshape(-1, NUM_STATES)) for model in models]  # one dense model at a time
    world = UncertainMDP(rows, start, 1.0, horizon=STEPS)
    pays = np.array([model[:, [SURVIVAL]].toarray()[:, 0] for model in rows])
    pays[:, LIVE * (TREATMENTS + 1) :] = 0
    rewards = np.ascontiguousarray(pays.T)  # not normalised: returns are shares of survivors
    return UncertainProblem(world.dynamics, rewards, weights_by_rank(LEVEL, len(rows)).numpy(), STEPS)


def plan(reward: np.ndarray, chance: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Optimal actions [T, S] of one world among those that are allowed, [S, A + 1]."""
    values, actions = np.zeros(NUM_STATES), np.zeros((STEPS, NUM_STATES), np.int64)
    for t in reversed(range(STEPS)):
        q = np.where(allowed, reward + chance @ values, -np.inf)
        actions[t], values = q.argmax(axis=1), q.max(axis=1)
    return actions


def one_seed(hospital: Hospital, num_episodes: int, num_models: int, seed: int) -> dict[str, float]:
    """True survival of every method on one log."""
    rng = make_rng(seed, "icu", num_episodes)
    episodes = hospital.log(num_episodes, rng)
    truth = problem_of([hospital.truth()], hospital.start)
    counts, by_state = counted(episodes, np.ones(len(episodes)))
    tried = counts.sum(axis=-1)
    everything = np.ones((NUM_STATES, TREATMENTS + 1), bool)

    def survival(actions: np.ndarray) -> float:
        return float(truth.returns(truth.of_actions(actions))[0])

    mean = hospital.rows(
        counts, by_state, 1.0, 1.0
    )  # rare treatments look like the clinicians', as a shrunken estimate has it
    pays = mean[:, :, SURVIVAL] * (np.arange(NUM_STATES) < LIVE)[:, None]
    often = np.concatenate([tried >= 5, np.ones((NUM_STATES, 1), bool)], axis=1)
    spread = doubt_of_one_step(mean, pays, np.concatenate([tried, by_state.sum(axis=-1, keepdims=True)], axis=1))
    found = {
        "clinicians": survival(np.full((STEPS, NUM_STATES), CLINICIANS)),
        "mean model": survival(plan(pays, mean, everything)),
        "SPIBB, 5 steps": survival(plan(pays, mean, often)),
        "mean - 1 sd": survival(plan(pays - spread, mean, everything)),
        "optimum": float(truth.best_returns[0]),
    }

    def model(m: int) -> np.ndarray:
        times = np.bincount(rng.integers(len(episodes), size=len(episodes)), minlength=len(episodes))
        return hospital.rows(*counted(episodes, times), KAPPA, (m + 0.5) / num_models)

    problem = problem_of(map(model, range(num_models)), hospital.start)
    oracle = DoubleOracle(problem)
    rounds = iter(range(ROUNDS))
    oracle.run(lambda _: next(rounds, None) is None)
    shares = oracle.equilibrium.mixture[oracle.support]
    returns = [truth.returns(oracle.policies[k])[0] for k in oracle.support]
    return {
        **found,
        f"double oracle, {LEVEL}": float(shares @ returns),
        "its value in the belief": oracle.equilibrium.value,
    }


def doubt_of_one_step(chance: np.ndarray, pays: np.ndarray, tried: np.ndarray) -> np.ndarray:
    """One standard deviation of the mean of what follows a step, [S, A + 1], with the mean model's values."""
    values = np.zeros(NUM_STATES)
    for _ in range(LONGEST):
        values = (pays + chance @ values).max(axis=1)
    worth = values + (np.arange(NUM_STATES) == SURVIVAL)
    variance = chance @ worth**2 - (chance @ worth) ** 2
    # Half a step's worth of a fair coin keeps a pair that was seen once from looking certain.
    spread = np.sqrt((np.maximum(variance, 0) * tried + 0.25) / np.maximum(tried, 1) / (tried + 1))
    spread[LIVE:] = 0
    return spread


def main() -> None:
    """Print the machine, then one line per seed and the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, nargs="+", default=[300, 1000, 3000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", type=int, default=40)
    args = parser.parse_args()
    print(provenance_line(), end="\n\n")
    hospital = Hospital()
    for num_episodes in args.episodes:
        results = []
        for seed in range(args.seeds):
            began = time.perf_counter()
            results.append(one_seed(hospital, num_episodes, args.models, seed))
            line = ", ".join(f"{name} {share:.4f}" for name, share in results[-1].items())
            print(f"{num_episodes} episodes, seed {seed}: {line} ({time.perf_counter() - began:.0f} s)", flush=True)
        means = ", ".join(f"{name} {np.mean([each[name] for each in results]):.4f}" for name in results[0])
        print(f"{num_episodes} episodes, mean: {means}", flush=True)


if __name__ == "__main__":
    main()
