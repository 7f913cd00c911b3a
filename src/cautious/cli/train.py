"""`cautious train`: train a belief on the user's own data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table

from cautious.cli.console import console, make_table, plural, progress_bar, say, warn
from cautious.errors import Argument, InvalidInputError, worded

if TYPE_CHECKING:
    from cautious.beliefs.diagnostics import Diagnosis
    from cautious.beliefs.ensemble import RewardEnsemble
    from cautious.progress import Progress
    from cautious.tables.learn import TrainingData

CHECKPOINTS = "checkpoints"
"""Folder of unfinished training, inside the belief's folder."""


@dataclass
class Train:
    """Train reward models on your own data: together they are a belief about the reward of each action.

    DATA is a table (.csv with a header line, or .parquet). If a column says what each row turned out to be, name it (--label)
    with a table of what each action pays for each label (--payoffs). Otherwise name the columns of the action that was taken
    and of its reward. All other columns are the state, and text columns are one-hot encoded. Rows with cells that
    are empty or cannot be read are left out, and counted (--missing). Or DATA is a .npz or .safetensors file with "inputs"
    [S, ...], one row per familiar state, and "rewards" [S, A], the reward of each action there (NaN where it was not tried).
    Several files are concatenated. After an interruption, the same command resumes the training.

    Then choose a level and decide, on the command line or in Python:

    cautious calibrate --belief belief --states fresh.csv --at-most 0.05

    cautious solve --belief belief --states new.csv --level 1-of-20

    CautiousPolicy(RewardEnsemble.load("belief"), "1-of-20").decide(states)

    'cautious reproduce' trains the beliefs of the paper's tasks and keeps them in the folder of the run.

    Example: cautious train loans.csv --label outcome --payoffs payoffs.csv --ignore id --out belief

    Example: cautious train log.csv --action treatment --reward outcome --ignore name date --out belief

    Example: cautious train experience.npz --out belief
    """

    data: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DATA [DATA ...]"), tyro.conf.Positional]
    """Training files."""
    label: str | None = None
    """For a table: the column that says what each row turned out to be, with --payoffs."""
    payoffs: Path | None = None
    """With --label: a table (.csv, .parquet) of what each action pays for each label. Its first column has the labels, the
    others are the actions. A payoff is a number, or depends on the row: -amount or 0.1*amount, where amount is a column of
    DATA."""
    action: str | None = None
    """For a table, instead: the column with the action of each row."""
    reward: str | None = None
    """For a table: the column with the reward of that action."""
    rewards: tuple[str, ...] = ()
    """For a table, instead of these two: one reward column per action, empty where the action was not tried."""
    ignore: tuple[str, ...] = ()
    """For a table: columns that are not part of the state, such as names and dates."""
    categorical: tuple[str, ...] = ()
    """For a table: columns whose numbers only name kinds, such as postcodes; texts are kinds anyway."""
    missing: Literal["leave-out", "indicator"] = "leave-out"
    """For a table: what becomes of rows with an empty cell. indicator: they stay, with the column's mean in the cell and a
    further column that says that it was empty; new rows may then be empty there, too."""
    out: Path = Path("belief")
    """Folder of the belief; it also holds unfinished training."""
    overwrite: bool = False
    """Replace a belief that is in that folder, which stays as it is until the new one is complete; where training with other
    settings was interrupted, begin anew."""
    num_models: int = 100
    """M; at least the n of the levels you plan to use."""
    num_epochs: int | None = None
    """Passes over the data. Default: 100, with --label 30; for vectors, fewer above 2,000 rows."""
    batch_size: int | None = None
    """States per step. Default: 64."""
    learning_rate: float | None = None
    """Learning rate of Adam. Default: 0.0016 for images; 0.01 for vectors, or 0.03 / √features with more than nine features."""
    weight_decay: float = 0.0
    """L2 penalty of Adam."""
    network: Literal["auto", "image", "vector"] = "auto"
    """image: the paper's convolutional network, for images [S, 28, 28]; vector: two hidden layers of 64; auto: by the shape."""
    validation_fraction: float = 0.1
    """Share of the states that is held out for the diagnosis."""
    prior: float | None = None
    """Width of each model's random prior far from familiar states; default: 0.75 for vectors, 0 (none) for images."""
    seed: int = 0
    """Seed of every random draw."""
    device: str = "auto"
    """Where to train: auto, cpu or cuda."""
    engine: Literal["local", "ray"] = "local"
    """What trains the models: this process, or all machines of a Ray cluster (pip install 'cautious[ray]'); the same bits."""
    address: str | None = None
    """HOST:PORT of a Ray cluster that this machine is part of, or auto; default: RAY_ADDRESS, or a new one on this machine."""

    def run(self) -> None:
        """Read, train, save, print the diagnosis."""
        import shutil

        from cautious.errors import OtherRunError

        with progress_bar("training") as progress:
            try:
                belief = self._train(progress)
            except OtherRunError:
                if not self.overwrite:
                    raise
                shutil.rmtree(self.out / CHECKPOINTS)  # of a run that was interrupted and is not wanted any more
                belief = self._train(progress)
        models, actions = plural(belief.num_models, "model"), plural(belief.num_actions, "action")
        say(f"{models} of {actions}, states {list(belief.state_shape)}")
        if belief.diagnosis is not None:
            console.print(diagnosis_table(belief.diagnosis))
            for concern in belief.diagnosis.concerns:
                say(f"warning: {concern}")
        say(f"belief: {self.out}   decide with it: cautious solve --belief {self.out} --states FILE")

    def _train(self, progress: Progress) -> RewardEnsemble:
        import shutil
        import warnings

        from cautious.beliefs.diagnostics import BeliefWarning
        from cautious.beliefs.ensemble import DESCRIPTION
        from cautious.beliefs.fit import fit_ensemble
        from cautious.beliefs.training.estimate import LongTrainingWarning
        from cautious.executors import open_executor
        from cautious.tables.learn import TableWarning, read_log
        from cautious.validation import as_folder

        folder = as_folder(self.out, "out")
        if (folder / DESCRIPTION).exists() and not self.overwrite:
            raise InvalidInputError(
                Argument("out", str(folder)),
                " already holds a belief; choose another folder, or replace it with --overwrite.",
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)  # the notes are printed below, after the columns
            data = read_log(
                self.data,
                action=self.action,
                reward=self.reward,
                rewards=self.rewards,
                label=self.label,
                payoffs=self.payoffs,
                ignore=self.ignore,
                categorical=self.categorical,
                missing=self.missing,
            )
        if data.schema is not None:
            console.print(columns_table(data))
        for note in data.notes:
            warn(worded(note.parts, vars(self)), note.problems)
        with warnings.catch_warnings(), open_executor(self.engine, self.address) as executor:
            warnings.simplefilter("always", LongTrainingWarning)
            # Printed before the training, not after it.
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
            warnings.simplefilter("ignore", BeliefWarning)  # `run` prints the same concerns with the diagnosis
            belief = fit_ensemble(
                data,
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
                executor=None if executor.is_local else executor,
            )
        belief.save(folder)  # an earlier belief counts until the last file of this one is written
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return belief


def columns_table(data: TrainingData) -> Table:
    """How each column of a table was read, and how often each label occurs or each action was tried."""
    from cautious.tables.kinds import Kind, shown

    columns = data.schema
    assert columns is not None
    rows = []
    for feature in columns.features:
        if feature.texts is None:
            kind = Kind(feature.kind)
            what = f"{kind or 'number'}, {shown(feature.low, kind)} to {shown(feature.high, kind)}"
        else:
            more = ", ..." if len(feature.texts) > 4 else ""
            what = f"{plural(len(feature.texts), 'text')}: {', '.join(feature.texts[:4])}{more}"
        rows.append((feature.name, what + (", or empty" if feature.fill is not None else "")))
    if data.labels is not None and data.payoffs is not None:
        for name, count in zip(data.payoffs.labels, data.labels.bincount().tolist(), strict=True):
            rows.append((name, f"label of {plural(count, 'row')}"))
        rows += [(name, "action, with payoffs") for name in columns.actions]
    else:
        tried = (~data.rewards.isnan()).sum(dim=0).tolist()
        for name, count in zip(columns.actions, tried, strict=True):
            rows.append((name, f"action, tried in {plural(count, 'row')}"))
    headings = ("column", "read as")
    return make_table("how the table was read", headings, rows, text_columns=headings)


def diagnosis_table(diagnosis: Diagnosis) -> Table:
    """Errors and disagreement of a belief on held-out familiar states and on synthetic novel ones."""
    rows = {
        "error of each action's mean reward": diagnosis.reward_deviation,
        "error of the models' mean": diagnosis.error,
        "error of a single model": diagnosis.member_error,
        "disagreement of the models": diagnosis.disagreement,
        "disagreement on synthetic novel states": diagnosis.unfamiliar_disagreement,
    }
    caption = None
    if diagnosis.num_unfamiliar:
        kinds = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share, _ in diagnosis.departures)
        caption = (
            f"1-of-20 departs from the ordinary action on {100 * diagnosis.unfamiliar_departures:.0f} % of "
            f"{plural(diagnosis.num_unfamiliar, 'synthetic row')} far from all familiar ones ({kinds})"
        )
    return make_table(
        f"diagnosis of the belief on {plural(diagnosis.num_states, 'held-out familiar state')}",
        ("quantity", "in units of the reward"),
        [(what, f"{value:.3g}") for what, value in rows.items()],
        text_columns=("quantity",),
        caption=caption,
    )
