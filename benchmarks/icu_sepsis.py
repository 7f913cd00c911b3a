"""ICU-Sepsis: survival of policies learned from logs of the clinicians' policy, with doubts that all treatments share.

python -m benchmarks.icu_sepsis [--episodes 300 1000 3000] [--logs 10] [--models 40] [--processes 2]   (pip install icu-sepsis)

716 states and 25 treatments; an episode ends in survival (pays 1) or death (0). The clinicians' policy is an action of the
world, number 0: its outcomes are those of all logged steps in a state, so that it is much better known than any single
treatment, and it is what a tie is broken for.

What a rare treatment does is guessed from what is usual in its state: the usual outcomes count as KAPPA made-up steps. How many
is read off the log, as the number that predicts each logged step best from all others (`similarity`).

Model m is a resample of whole episodes. Beside that all models differ in one number z_m, a quantile of the normal distribution:
every action of the world is z_m standard errors better or worse than it looks. Nobody knows how far a log can be trusted, and
where one treatment is worse than it looks, others are, too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from statistics import NormalDist

import numpy as np
import scipy.sparse

from cautious import CVaR, UncertainMDP
from cautious.risk import weights_by_rank
from cautious.seeding import make_rng
from cautious.solvers.uncertain.oracle import DoubleOracle
from cautious.solvers.uncertain.problem import UncertainProblem
from cautious_paper.experiments.store import provenance_line

DEATH, SURVIVAL, LIVE, NUM_STATES, TREATMENTS = 713, 714, 713, 716, 25
CLINICIANS = 0
"""Action; treatment i is action 1 + i."""
STEPS, LONGEST = 30, 60
LEVEL, ROUNDS = CVaR(0.25), 8
KAPPAS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
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

    def rows(self, counts: np.ndarray, by_state: np.ndarray, kappa: float) -> np.ndarray:
        """One model, [S, 1 + A, S]: counts [S, A, S] beside `kappa` steps of what is usual in the state, by_state [S, S]."""
        tried = by_state.sum(axis=-1, keepdims=True)
        usual = np.where(tried > 0, by_state / np.maximum(tried, 1), np.eye(NUM_STATES)[DEATH])
        return self.with_clinicians(
            (counts + kappa * usual[:, None]) / (counts.sum(axis=-1, keepdims=True) + kappa), usual
        )

    def truth(self) -> np.ndarray:
        """The true world with the clinicians' action, [S, 1 + A, S]."""
        return self.with_clinicians(self.chance, self.clinicians)

    def with_clinicians(self, treated: np.ndarray, usual: np.ndarray) -> np.ndarray:
        """The clinicians' action [S, S], then the treatments [S, A, S]; of those that are not admissible one dies."""
        treated = np.where(self.admissible[..., None], treated, np.eye(NUM_STATES)[DEATH])
        rows = np.concatenate([usual[:, None], treated], axis=1)
        rows[LIVE:] = np.eye(NUM_STATES)[NUM_STATES - 1]
        return rows


def counted(episodes: Steps, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts [S, A, S] and [S, S] of a log whose episodes count `times` [E]."""
    steps, weight = np.concatenate(episodes), np.repeat(times, [len(each) for each in episodes])
    counts = np.zeros((NUM_STATES, TREATMENTS, NUM_STATES))
    np.add.at(counts, tuple(steps.T), weight)
    return counts, counts.sum(axis=1)


def similarity(counts: np.ndarray, by_state: np.ndarray) -> float:
    """The number of made-up steps under which each logged step is likeliest, given all others.

    Successors that were seen once in a state are left out: nothing else predicts them, whatever the number.
    """
    state, treatment, following = np.nonzero(counts * (by_state >= 2)[:, None])
    seen, usual = counts[state, treatment, following], by_state[state, following]
    tried, in_state = counts.sum(axis=-1)[state, treatment], by_state.sum(axis=-1)[state]

    def likelihood(kappa: float) -> float:
        share = (seen - 1 + kappa * (usual - 1) / (in_state - 1)) / (tried - 1 + kappa)
        return float(seen @ np.log(share))

    return max(KAPPAS, key=likelihood)


def problem_of(models: Iterable[np.ndarray], start: np.ndarray) -> UncertainProblem:
    """The problem of some models [S, 1 + A, S]: survival within `STEPS` steps."""
    rows = [scipy.sparse.csr_array(model.reshape(-1, NUM_STATES)) for model in models]  # one dense model at a time
    world = UncertainMDP(rows, start, 1.0, horizon=STEPS)
    pays = np.array([model[:, [SURVIVAL]].toarray()[:, 0] for model in rows])
    pays[:, LIVE * (TREATMENTS + 1) :] = 0
    rewards = np.ascontiguousarray(pays.T)  # not normalised: returns are shares of survivors
    return UncertainProblem(world.dynamics, rewards, weights_by_rank(LEVEL, len(rows)).numpy(), STEPS)


def pays(chance: np.ndarray) -> np.ndarray:
    """The chance that the next step is survival, [S, 1 + A]."""
    return chance[:, :, SURVIVAL] * (np.arange(NUM_STATES) < LIVE)[:, None]


def plan(reward: np.ndarray, chance: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Optimal actions [T, S] of one world among those that are allowed, [S, 1 + A]; of equal ones the first."""
    values, actions = np.zeros(NUM_STATES), np.zeros((STEPS, NUM_STATES), np.int64)
    for t in reversed(range(STEPS)):
        q = np.where(allowed, reward + chance @ values, -np.inf)
        actions[t], values = q.argmax(axis=1), q.max(axis=1)
    return actions


def worth_of(chance: np.ndarray) -> np.ndarray:
    """What it is worth to come to a state, [S]: its value in one world, or 1 for survival."""
    values, reward = np.zeros(NUM_STATES), pays(chance)
    for _ in range(LONGEST):
        values = (reward + chance @ values).max(axis=1)
    return values + (np.arange(NUM_STATES) == SURVIVAL)


def doubt_of_one_step(chance: np.ndarray, worth: np.ndarray, tried: np.ndarray, coin: float = 0.0) -> np.ndarray:
    """One standard error of what a step leads to, [S, 1 + A]: √(Var[worth] / (n + 1)) after n steps (Dirichlet).

    `coin` is the variance of one made-up step, which keeps a pair that was seen once from looking certain.
    """
    variance = np.maximum(chance @ worth**2 - (chance @ worth) ** 2, 0)
    steps = np.maximum(tried, 1)
    error = np.sqrt((variance * steps + coin) / steps / (steps + 1))
    error[LIVE:] = 0
    return error


def trusted(chance: np.ndarray, worth: np.ndarray, tried: np.ndarray, z: float) -> np.ndarray:
    """The world whose every action is z standard errors better, or worse: a share of its steps ends in survival, or death."""
    mean, error = chance @ worth, doubt_of_one_step(chance, worth, tried)
    room = mean if z < 0 else 1 - mean
    share = np.where(error > 0, np.clip(abs(z) * error / np.maximum(room, 1e-9), 0, 1), 0)
    moved = chance * (1 - share)[..., None]
    moved[:, :, DEATH if z < 0 else SURVIVAL] += share
    return moved


def one_log(num_models: int, case: tuple[int, int]) -> tuple[int, int, dict[str, float], float]:
    """True survival of every method on one log, by (number of episodes, number of the log); with its seconds."""
    began = time.perf_counter()
    num_episodes, log = case
    hospital, rng = Hospital(), make_rng(log, "icu", num_episodes)
    episodes = hospital.log(num_episodes, rng)
    truth = problem_of([hospital.truth()], hospital.start)
    counts, by_state = counted(episodes, np.ones(len(episodes)))
    allowed = np.concatenate([np.ones((NUM_STATES, 1), bool), hospital.admissible], axis=1)

    def survival(actions: np.ndarray) -> float:
        return float(truth.returns(truth.of_actions(actions))[0])

    def in_all(counts: np.ndarray, made_up: float) -> np.ndarray:
        tried = counts.sum(axis=-1)
        return np.concatenate([tried.sum(axis=-1, keepdims=True), tried + made_up], axis=1)

    kappa = similarity(counts, by_state)
    plain, similar = hospital.rows(counts, by_state, 1.0), hospital.rows(counts, by_state, kappa)
    often = np.concatenate([np.ones((NUM_STATES, 1), bool), counts.sum(axis=-1) >= 5], axis=1)
    careful = doubt_of_one_step(plain, worth_of(plain), in_all(counts, 0), coin=0.25)
    found = {
        "clinicians": survival(np.full((STEPS, NUM_STATES), CLINICIANS)),
        "mean model": survival(plan(pays(plain), plain, allowed)),
        "SPIBB, 5 steps": survival(plan(pays(plain), plain, allowed & often)),
        "mean - 1 sd": survival(plan(pays(plain) - careful, plain, allowed)),
        "mean model, similar": survival(plan(pays(similar), similar, allowed)),
    }
    worth = worth_of(similar)

    def model(m: int) -> np.ndarray:
        times = np.bincount(rng.integers(len(episodes), size=len(episodes)), minlength=len(episodes))
        drawn, drawn_by_state = counted(episodes, times)
        rows = hospital.rows(drawn, drawn_by_state, kappa)
        return trusted(rows, worth, in_all(drawn, kappa), NormalDist().inv_cdf((m + 0.5) / num_models))

    problem = problem_of(map(model, range(num_models)), hospital.start)
    oracle = DoubleOracle(problem)
    rounds = iter(range(ROUNDS))
    oracle.run(lambda _: next(rounds, None) is None)
    shares = oracle.equilibrium.mixture[oracle.support]
    returns = [truth.returns(oracle.policies[k])[0] for k in oracle.support]
    found |= {
        f"double oracle, {LEVEL}": float(shares @ returns),
        "optimum": float(truth.best_returns[0]),
        "the oracle's value in the belief": oracle.equilibrium.value,
        "made-up steps": kappa,
    }
    return num_episodes, log, found, time.perf_counter() - began


def main() -> None:
    """Print the machine, one line per log as it is done, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, nargs="+", default=[300, 1000, 3000])
    parser.add_argument("--logs", type=int, default=10)
    parser.add_argument("--first-log", type=int, default=0)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    print(provenance_line(), end="\n\n")
    cases = [(episodes, args.first_log + log) for log in range(args.logs) for episodes in args.episodes]
    results: dict[int, list[dict[str, float]]] = {episodes: [] for episodes in args.episodes}
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for episodes, log, found, seconds in pool.imap_unordered(partial(one_log, args.models), cases):
            results[episodes].append(found)
            line = ", ".join(f"{name} {share:.4f}" for name, share in found.items())
            print(f"{episodes} episodes, log {log}: {line} ({seconds:.0f} s)", flush=True)
    for episodes, found_in_logs in results.items():
        print(f"\n| {episodes} episodes, {len(found_in_logs)} logs | mean | worst |\n|---|---|---|")
        for name in found_in_logs[0]:
            shares = [each[name] for each in found_in_logs]
            print(f"| {name} | {np.mean(shares):.4f} | {min(shares):.4f} |")


if __name__ == "__main__":
    main()
