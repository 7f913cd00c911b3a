"""`cautious train`: a belief from a user's own data, without writing Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from torch import Tensor

    from cautious.beliefs.datasets.schema import TableSchema
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.progress import Progress


@dataclass
class Train:
    """Train reward models on your own experience: together they are a belief about what each action pays.

    DATA is a table (.csv, with a line of headings): name the columns that say what was done and what it paid; all others are
    what a state is made of, and text becomes a column of 0 and 1 for each value. Or DATA is a .npz or .safetensors file with
    "inputs" [S, ...], one row a familiar state, and "rewards" [S, A], what each action paid there (NaN where it was not tried).
    Several files follow each other. Interrupted, the same command goes on.

    Then see how cautious to be, and decide with it, here or in Python:

    cautious calibrate --belief belief --states familiar.csv --at-most 0.05

    cautious solve --belief belief --states new.csv --level 1-of-20

    CautiousPolicy(RewardEnsemble.load("belief"), "1-of-20").decide(states)

    The paper's own tasks are trained by 'cautious reproduce', which keeps their beliefs in its run's folder.

    Example: cautious train log.csv --action treatment --reward outcome --ignore name date --out belief

    Example: cautious train experience.npz --out belief
    """

    data: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DATA [DATA ...]"), tyro.conf.Positional]
    """Your files."""
    action: str | None = None
    """Of a table: the column that says what was done in each row."""
    reward: str | None = None
    """Of a table: the column that says what that paid."""
    rewards: tuple[str, ...] = ()
    """Of a table, instead of these two: one column for each action with what it paid, empty where it was not tried."""
    ignore: tuple[str, ...] = ()
    """Of a table: columns that are no part of a state, such as names and dates."""
    out: Path = Path("belief")
    """Folder of the belief; unfinished work is kept in it too."""
    num_models: int = 100
    """M; at least as many as the n of the levels you mean to use."""
    num_epochs: int = 100
    """Passes over the data."""
    batch_size: int = 64
    """States a step."""
    learning_rate: float | None = None
    """Of Adam; if not given, what suits the network: 0.0016 for images; for vectors 0.01 or, with more than nine features,
    0.03 / √features."""
    weight_decay: float = 0.0
    """Of Adam, as L2 penalty."""
    network: Literal["auto", "image", "vector"] = "auto"
    """image: the paper's convolutional network, for images [S, 28, 28]; vector: two hidden layers of 64; auto: by the shape."""
    validation_fraction: float = 0.1
    """Part of the states that no model sees, to look at the belief with."""
    prior: float | None = None
    """Width of each model's random prior far from familiar states; if not given, 8 for vectors, 0 (none) for images."""
    seed: int = 0
    """Starts every random draw."""
    device: str = "auto"
    """Where to train: auto, cpu or cuda."""

    def run(self) -> None:
        """Read, train, look at the belief, write."""
        from cautious.cli.console import console, progress_bar, say
        from cautious.cli.tables import diagnosis_table

        with progress_bar("training") as progress:
            belief = self._trained(progress)
        console.print(f"{belief.num_models} models of {belief.num_actions} actions, states {list(belief.state_shape)}")
        if belief.diagnosis is not None:
            console.print(diagnosis_table(belief.diagnosis))
            for concern in belief.diagnosis.concerns:
                console.print(f"[yellow]look out:[/] {concern}")
        say(f"belief: {self.out}   decide with it: cautious solve --belief {self.out} --states FILE")

    def _trained(self, progress: Progress) -> RewardEnsemble:
        import shutil
        import warnings

        from cautious.beliefs.datasets.schema import KEPT_AS, OUTCOME_KEPT_AS
        from cautious.beliefs.diagnostics import BeliefWarning
        from cautious.beliefs.ensemble import DESCRIPTION
        from cautious.beliefs.fit import fit_ensemble
        from cautious.errors import InvalidInputError
        from cautious.validation import as_folder

        folder = as_folder(self.out, "out")
        if (folder / DESCRIPTION).exists():
            raise InvalidInputError(f"out={str(folder)!r} holds a belief already; choose another folder, or delete it.")
        columns, *experience = self._experience()
        outcome = {"action": self.action, "reward": self.reward, "rewards": list(self.rewards)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BeliefWarning)  # said below, as part of the look at it
            belief = fit_ensemble(
                *experience,
                network=self.network,
                num_models=self.num_models,
                num_epochs=self.num_epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                seed=self.seed,
                device=self.device,
                checkpoint_dir=folder / CHECKPOINTS,
                progress=progress,
                validation_fraction=self.validation_fraction,
                prior=self.prior,
            )
        if columns is not None:
            belief.settings |= {KEPT_AS: columns.described(), OUTCOME_KEPT_AS: outcome}
        belief.save(folder)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return belief

    def _experience(self) -> tuple[TableSchema | None, Tensor, Tensor]:
        """States and what each action paid there; of a table also how its rows become states."""
        from cautious.beliefs.datasets.arrays import load_dataset
        from cautious.beliefs.datasets.csv import are_tables, read_tables
        from cautious.beliefs.datasets.schema import OutcomeColumns, TableSchema
        from cautious.cli.console import console
        from cautious.cli.tables import columns_table
        from cautious.errors import InvalidInputError

        if self.data and are_tables(self.data):
            table, outcome = read_tables(self.data), OutcomeColumns(self.action, self.reward, self.rewards)
            actions, rewards = outcome.of(table)
            columns = TableSchema.learned(table, actions, (*outcome.columns, *self.ignore))
            console.print(columns_table(columns, rewards))
            return columns, columns.states(table), rewards
        if self.action is not None or self.reward is not None or self.rewards or self.ignore:
            raise InvalidInputError(
                "action, reward, rewards and ignore name columns of a table (.csv); arrays have none."
            )
        return None, *load_dataset(self.data)


CHECKPOINTS = "checkpoints"
