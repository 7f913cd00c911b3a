"""Every kind of file that the package reads: how a valid one is made, and how a user has it read (for `fuzz_files.py`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from cautious import CautiousPolicy, KofNPPO, RewardEnsemble, TabularMDP, fit_ensemble
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.io.arrays import (
    load_array,
    save_tensors,
)
from cautious.mdp.files import load_mdp, save_mdp
from cautious.seeding import make_rng
from cautious.tables.arrays import load_dataset
from cautious.tables.files import read_table
from cautious.tables.learn import Missing, learn_log
from cautious.tables.schema import OutcomeColumns
from cautious.validation import as_float_tensor
from cautious_paper.experiments.store import Store
from cautious_paper.networks.driving import NUM_PARAMETERS, DrivingNetwork
from cautious_paper.networks.image import ImageNetwork
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.data.idx import write_idx


class Kind(NamedTuple):
    """One kind of folder."""

    make: Callable[[Path, int], None]
    """Writes valid files; another number gives other content."""
    read: Callable[[Path], Any]
    """Reads all of them through public functions; returns what they hold."""
    checked: bool = True
    """Whether damage can be told from other content: not in formats without checksums."""
    together: bool = True
    """Whether its files know each other: one that stands alone may be exchanged for another of its kind."""
    signed_again: bool = False
    """Whether spoilt files get checksums that fit, as someone would write who means harm."""


def normal(seed: int, *shape: int) -> Tensor:
    """Made-up numbers."""
    return torch.from_numpy(make_rng(seed, "fuzz").standard_normal(shape))


def make_run(folder: Path, seed: int) -> None:
    """A run with two stages."""
    settings = {"training": {"num_models": 2, "seed": seed}, "levels": ["1-of-2"], "num_runs": 2}
    store = Store.create(folder, "driving", settings)
    for stage in ("novel-p0.5", "novel-p1"):
        numbers = {"levels": ["1-of-2"], "statistics": {"speed": [1.5, None, 2e-9]}, "hardware": "made up"}
        store.save(stage, numbers, {"policy": normal(seed, 2, 3), "regret": normal(seed, 4).float()})


def read_run(folder: Path) -> Any:
    """Everything in it."""
    store = Store.open(folder)
    stages = ("novel-p0.5", "novel-p1")
    return [store.manifest, *(part for stage in stages for part in (store.numbers(stage), store.arrays(stage)))]


def train(folder: Path, seed: int = 0) -> RewardEnsemble:
    """Train three tiny models with checkpoints in `folder`, or take them from there."""
    return fit_ensemble(
        normal(seed, 12, 2), normal(seed, 12, 2), num_models=3, num_epochs=1, batch_size=12, seed=seed,
        checkpoint_dir=folder, progress=False, validation_fraction=0,
    )  # fmt: skip


def parts_of(ensemble: Any) -> Any:
    """What an ensemble is."""
    network = getattr(ensemble, "network", None)
    described = [network.name, network.describe()] if network is not None else "driving"
    return [described, ensemble.settings, ensemble.parameters, ensemble.losses]


def vector_ensemble(seed: int) -> RewardEnsemble:
    """Three small networks on vectors."""
    network = VectorNetwork((2,), 2, (4,))
    return RewardEnsemble(
        network, normal(seed, 3, network.num_parameters).float(), normal(seed, 3).float(), {"a": seed}
    )


def image_ensemble(seed: int) -> RewardEnsemble:
    """One network on images."""
    network = ImageNetwork(3)
    return RewardEnsemble(network, normal(seed, 1, network.num_parameters).float(), torch.ones(1), {"a": seed})


def driving_ensemble(seed: int) -> RewardEnsemble:
    """One network of driving."""
    return RewardEnsemble(DrivingNetwork(), normal(seed, 1, NUM_PARAMETERS).float(), torch.ones(1), {"a": seed})


def world(seed: int) -> TabularMDP:
    """Three states, two actions."""
    return TabularMDP(torch.softmax(normal(seed, 3, 2, 3), dim=-1), torch.ones(3) / 3, 0.5)


def make_log(folder: Path, seed: int) -> None:
    """Nine rows: a number, a text, what was done and what it paid."""
    cells = [f"{value:.3f},{'red' if value > 0 else 'blue'},{n % 3},0.5" for n, value in enumerate(normal(seed, 9))]
    (folder / "log.csv").write_text("\n".join(["x,kind,done,paid", *cells]) + "\n", encoding="utf-8")


def read_log(folder: Path) -> Any:
    """A log as states and rewards."""
    table, outcome = read_table(folder / "log.csv"), OutcomeColumns("done", "paid")
    learned, rewards = learn_log(table, outcome, (), Missing.LEAVE_OUT)
    return [learned.schema.actions, learned.states, rewards]


def parts_of_world(mdp: TabularMDP) -> Any:
    """What a world is."""
    return [mdp.transitions.to_dense(), mdp.initial_state_dist, mdp.discount]


def policy_of_table(seed: int) -> CautiousPolicy:
    """A policy in a world, with a table as its belief."""
    return CautiousPolicy(normal(seed, 4, 3, 2), "1-of-3", mdp=world(seed), num_iterations=3, seed=seed)


def read_policy_of_table(folder: Path) -> Any:
    """The policy's parts, and what it decides."""
    policy = CautiousPolicy.load(folder)
    assert policy.mdp is not None
    return [str(policy.level), policy.belief.table, parts_of_world(policy.mdp), policy.decide([0, 1, 2]).probabilities]


def read_policy_of_ensemble(folder: Path) -> Any:
    """The policy's parts, and what it decides."""
    policy = CautiousPolicy.load(folder)
    return [str(policy.level), parts_of(policy.belief), policy.decide(torch.ones(1, 2)).probabilities]


class Corridor(gymnasium.Env[Any, Any]):
    """Three numbers are seen, and one of two actions is taken, for ever."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin."""
        super().reset(seed=seed)
        return np.zeros(3, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        """Stay."""
        return np.zeros(3, dtype=np.float32), 0.0, False, False, {}


class Pay:
    """Two models that disagree about the second action."""

    def rewards(self, observations: Any) -> Tensor:
        """The same everywhere, [2, B, 2]."""
        return torch.tensor([[0.2, 1.0], [0.2, -0.4]])[:, None].expand(2, len(observations), 2)


def make_agent(folder: Path, seed: int) -> None:
    """An agent that has learned a little."""
    settings = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "gamma": 0.9, "seed": seed, "device": "cpu"}
    agent = KofNPPO("MlpPolicy", Corridor(), Pay(), "1-of-2", policy_kwargs={"net_arch": [4, 3]}, **settings)
    agent.learn(16).save(folder)


def read_agent(folder: Path) -> Any:
    """Settings, weights, the optimiser's state, the mixture, and what it does."""
    agent = KofNPPO.load(folder, Corridor(), Pay(), device="cpu")
    settings = [str(agent.level), agent.gamma, agent.n_steps, agent.n_epochs, agent.seed, agent.num_timesteps]
    state = [list(entry.values()) for entry in agent.policy.optimizer.state_dict()["state"].values()]
    parts = [torch.from_numpy(part) for part in agent.mixture.arrays().values()]
    return [settings, agent.policy.state_dict(), state, parts, agent.probabilities(np.zeros((1, 3), np.float32))]


def make_images(ending: str) -> Callable[[Path, int], None]:
    """Twelve made-up digits, as IDX files with this ending."""

    def make(folder: Path, seed: int) -> None:
        pixels = torch.from_numpy(make_rng(seed, "pixels").integers(0, 256, (12, 28, 28), dtype=np.uint8))
        write_idx(folder / "mnist" / f"t10k-images-idx3-ubyte{ending}", pixels)
        write_idx(folder / "mnist" / f"t10k-labels-idx1-ubyte{ending}", (torch.arange(12) % 10).to(torch.uint8))

    return make


def read_images(folder: Path) -> Any:
    """Images and labels."""
    found = load_images("digits", "test", folder)
    return [found.images, found.labels]


def _saved(make: Callable[[int], Any]) -> Callable[[Path, int], None]:
    return lambda folder, seed: make(seed).save(folder)


KINDS = {
    "run": Kind(make_run, read_run),
    "training checkpoints": Kind(
        lambda folder, seed: train(folder, seed) and None, lambda folder: parts_of(train(folder))
    ),
    "ensemble, vectors": Kind(_saved(vector_ensemble), lambda folder: parts_of(RewardEnsemble.load(folder))),
    "ensemble, images": Kind(_saved(image_ensemble), lambda folder: parts_of(RewardEnsemble.load(folder))),
    "ensemble, driving": Kind(_saved(driving_ensemble), lambda folder: parts_of(RewardEnsemble.load(folder))),
    "policy, table and world": Kind(_saved(policy_of_table), read_policy_of_table),
    "policy, ensemble": Kind(
        _saved(lambda seed: CautiousPolicy(vector_ensemble(seed), "1-of-3")), read_policy_of_ensemble
    ),
    "world": Kind(
        lambda folder, seed: save_mdp(folder / "mdp.safetensors", world(seed)) and None,
        lambda folder: parts_of_world(load_mdp(folder / "mdp.safetensors")),
        together=False,
    ),
    "array of a solution, or of rewards": Kind(
        lambda folder, seed: (
            save_tensors(folder / "policy.safetensors", {"average_policy": normal(seed, 3, 2)}) and None
        ),
        lambda folder: load_array(folder / "policy.safetensors", "average_policy"),
        together=False,
    ),
    "images, IDX.gz": Kind(make_images(".gz"), read_images, together=False),
}
KINDS |= {
    "agent": Kind(make_agent, read_agent),
    "agent, signed again": Kind(make_agent, read_agent, checked=False, signed_again=True),
    "images, plain IDX": Kind(make_images(""), read_images, checked=False, together=False),
    "rewards, .npy": Kind(
        lambda folder, seed: np.save(folder / "rewards.npy", normal(seed, 3, 2, 2).numpy()),
        lambda folder: as_float_tensor(load_array(folder / "rewards.npy", "rewards"), "rewards"),
        checked=False,
    ),
    "experience, .npz": Kind(
        lambda folder, seed: np.savez(
            folder / "experience.npz", inputs=normal(seed, 9, 2).numpy(), rewards=normal(seed, 9, 3).numpy()
        ),
        lambda folder: list(load_dataset([folder / "experience.npz"])),
        checked=False,
    ),
    "table, .csv": Kind(make_log, read_log, checked=False),
}


def signature(value: Any) -> str:
    """The same text for the same content, to the last bit."""
    digest = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, Tensor):
            part = part.detach().contiguous().cpu().numpy()
            digest.update(f"{part.dtype}{part.shape}".encode() + part.tobytes())
        elif isinstance(part, dict):
            for name in sorted(part):
                add([name, part[name]])
        elif isinstance(part, (list, tuple)):
            digest.update(f"[{len(part)}".encode())
            for one in part:
                add(one)
        else:
            digest.update(f"{type(part).__name__}:{part!r};".encode())

    add(value)
    return digest.hexdigest()
