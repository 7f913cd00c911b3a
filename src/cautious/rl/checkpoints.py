"""Learning that survives a kill: in pieces, each from a reset of the environments, with a checkpoint after each.

What an environment is in the middle of cannot be written to a file. So with checkpoints every piece begins with fresh episodes,
and with random streams that depend on the seed and the piece's number alone: a run that was killed goes on with the next piece,
and ends with the same bits as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cautious.errors import BadFileError, InvalidInputError, OtherRunError
from cautious.io.arrays import fingerprint_of
from cautious.io.content_names import reading
from cautious.rl.file_rules import check_tensors
from cautious.rl.files import (
    DESCRIPTION,
    UNFIT,
    check_savable,
    described_agent,
    mixture_tensors,
    read_agent,
    restore,
    save_agent,
    tensors_of,
)
from cautious.seeding import derive_seed
from cautious.validation import as_folder, parse_count

if TYPE_CHECKING:
    from cautious.rl.kofn_ppo import KofNPPO

ROLLOUTS_PER_PIECE = 10
"""By default."""
RUN = "learning"
"""The entry of a checkpoint's description that says which run it belongs to, and how far that is."""


def learn_in_pieces(
    agent: KofNPPO, steps: int, folder: Path | str, every: int | None, learn_piece: Callable[[int], object]
) -> None:
    """Learn `steps` steps, going on from the checkpoint in `folder` if there is one of this very run.

    Args:
        agent: As it was made, or as an earlier `learn` left it; `num_timesteps` is where it begins.
        steps: In all.
        folder: Of the checkpoint, which `KofNPPO.load` reads, too.
        every: Steps of a piece, rounded up to whole rollouts.
        learn_piece: Learns so many further steps.

    Raises:
        OtherRunError: The folder has a checkpoint of another run.
    """
    if agent.seed is None:
        raise InvalidInputError(
            "checkpoint_dir: learning can be repeated to the bit only with a seed; pass KofNPPO(seed=...)."
        )
    if agent.num_starts != 1:
        raise InvalidInputError(f"checkpoint_dir: needs num_starts=1, got num_starts={agent.num_starts}.")
    if agent.get_vec_normalize_env() is not None:
        raise InvalidInputError(
            "checkpoint_dir: a checkpoint does not hold the statistics of VecNormalize; leave one out."
        )
    check_savable(agent)
    path, rollout = as_folder(folder, "checkpoint_dir"), agent.n_steps * agent.n_envs
    every = ROLLOUTS_PER_PIECE * rollout if every is None else parse_count(every, "checkpoint_every")
    size = -(-every // rollout) * rollout
    begin, end = agent.num_timesteps, agent.num_timesteps + steps
    run = {
        "steps": steps,
        "piece": size,
        "begin": begin,
        "from": fingerprint_of(*tensors_of(agent).values()),
    }
    pieces = _resumed(agent, path, run) if (path / DESCRIPTION).exists() else 0
    agent.progress_span = begin, end
    try:
        while agent.num_timesteps < end:
            agent.set_random_seed(derive_seed(agent.seed, "piece", pieces) % 2**31)
            agent.begin_episodes()
            learn_piece(min(size, end - agent.num_timesteps))
            pieces += 1
            save_agent(path, agent, {RUN: run | {"pieces": pieces}})
    finally:
        agent.progress_span = None


def _resumed(agent: KofNPPO, folder: Path, run: dict[str, Any]) -> int:
    """Give the agent what its last checkpoint holds; returns the number of pieces that are done."""
    described, tensors = reading(folder, lambda: read_agent(folder))
    there, ours = described.get(RUN), described_agent(agent)
    moving = ("num_timesteps", "num_updates")
    if (
        not isinstance(there, dict)
        or any(there.get(name) != value for name, value in run.items())
        or any(described.get(name) != value for name, value in ours.items() if name not in moving)
    ):
        raise OtherRunError(
            f"{folder}: holds a checkpoint of another agent, or of a run of other steps; choose another folder, or delete it."
        )
    try:
        check_tensors(agent.policy, tensors, agent.num_models, mixture_tensors(agent))
        pieces = parse_count(there["pieces"], "pieces")
    except UNFIT as error:
        raise BadFileError(f"{folder}: not a checkpoint that this agent wrote ({error})") from None
    restore(agent, tensors, described)
    return pieces
