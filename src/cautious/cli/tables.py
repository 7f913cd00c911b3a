"""Results as terminal tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text
from torch import Tensor

from cautious.beliefs.datasets.schema import TableSchema as Features
from cautious.beliefs.diagnostics import Diagnosis
from cautious.benchmarking.measures import Comparison
from cautious.evaluation.calibration import Calibration
from cautious.experiments.demos.first_decisions import DemoResult
from cautious.experiments.demos.rollouts import Drive
from cautious.report.claims.base import ClaimResult
from cautious.report.driving.animation import caption, terminal_lines
from cautious.report.repeats import Tally
from cautious.report.tables import Table as Results
from cautious.solvers.solution import Certificate


def certificate_table(levels: Sequence[str], certificates: Mapping[str, Certificate]) -> Table:
    """One row a level and policy: its exact value, the bound for every policy, the gap (means over states, if many)."""
    table = Table(title="how far from the best possible policy")
    for heading in ("level", "policy", "value (lower)", "bound for all (upper)", "gap"):
        table.add_column(heading, justify="left" if heading in ("level", "policy") else "right")
    for number, level in enumerate(levels):
        for name, certificate in certificates.items():
            parts = (certificate.lower, certificate.upper, certificate.gap)
            own = [part.reshape(len(levels), -1)[number].mean() for part in parts]
            table.add_row(level, name, *(f"{float(part):.6f}" for part in own))
    return table


def caution_table(levels: Sequence[str], caution: Tensor) -> Table:
    """How far each level departs from ordinary behaviour: caution [S], or [L, S]."""
    table = Table(title="how far from ordinary behaviour", caption="caution: 0 acts as usual, 1 entirely differently")
    for heading in ("level", "states", "mean caution", "most", "states with more than a half"):
        table.add_column(heading, justify="left" if heading == "level" else "right")
    for level, own in zip(levels, caution.reshape(len(levels), -1), strict=True):
        high = int((own > 0.5).sum())
        table.add_row(level, f"{len(own):,}", f"{float(own.mean()):.3f}", f"{float(own.max()):.3f}", f"{high:,}")
    return table


def disagreement_table(disagreement: Tensor, familiar: bool) -> Table:
    """How far the models differ in the states asked about, [S]; whether in units of familiar states."""
    unit = "1: what 95 % of familiar states stay below" if familiar else "in units of the reward"
    table = Table(title="how far the models differ", caption=f"disagreement; {unit}")
    for heading in ("states", "median", "most", *(("states above 1",) if familiar else ())):
        table.add_column(heading, justify="right")
    numbers = [f"{len(disagreement):,}", f"{float(disagreement.median()):.3g}", f"{float(disagreement.max()):.3g}"]
    table.add_row(*numbers, *((f"{int((disagreement > 1).sum()):,}",) if familiar else ()))
    return table


def actions_table(levels: Sequence[str], actions: Tensor, ordinary: Tensor, names: Sequence[str] | None) -> Table:
    """In how many states each action is taken, ordinarily (policy [S, A]) and at each level (actions [S], or [L, S])."""
    num_actions = ordinary.shape[-1]
    table = Table(title="how many states get which action")
    table.add_column("action")
    for heading in ("ordinarily", *levels):
        table.add_column(heading, justify="right")
    chosen = [ordinary.argmax(dim=-1), *actions.reshape(len(levels), -1)]
    counts = [own.bincount(minlength=num_actions).tolist() for own in chosen]
    labels = [str(number) for number in range(num_actions)] if names is None else names
    for label, *row in zip(labels, *counts, strict=True):
        if any(row) or num_actions <= 20:
            table.add_row(Text(label), *(f"{count:,}" for count in row))
    return table


def columns_table(columns: Features, rewards: Tensor) -> Table:
    """What a table's columns were taken for, and how often each action was tried in it: rewards [S, A]."""
    table = Table(title="how the table was read")
    table.add_column("column")
    table.add_column("taken as")
    for feature in columns.features:
        if feature.texts is None:
            what = f"a number, {feature.low:g} to {feature.high:g}"
        else:
            more = ", ..." if len(feature.texts) > 4 else ""
            what = f"{len(feature.texts)} texts: {', '.join(feature.texts[:4])}{more}"
        table.add_row(Text(feature.name), Text(what))
    tried = (~rewards.isnan()).sum(dim=0).tolist()
    for name, count in zip(columns.actions, tried, strict=True):
        table.add_row(Text(name), f"an action, tried in {count:,} rows")
    return table


def calibration_table(found: Calibration) -> Table:
    """The levels tried, from ordinary to cautious; or the threshold of a rule."""
    what = "mean caution" if found.measure == "total-variation" else "share of decisions that depart"
    average = found.guarantee == "average"
    certain = "on average" if average else f"with confidence {found.confidence:g}"
    table = Table(title=f"{what} on {found.num_states:,} familiar states: at most {found.at_most:g} {certain}")
    number = "to expect" if average else "p-value"
    for heading in ("level" if found.threshold is None else "threshold", "rate", number, ""):
        table.add_column(heading, justify="left" if heading == "level" else "right")
    for level, rate, p_value in found.tried:
        kept = p_value <= (found.at_most if average else 1 - found.confidence)
        table.add_row(level, f"{rate:.4f}", f"{p_value:.3g}", "allowed" if kept else "too much, or not enough states")
    return table


def result_table(results: Results) -> Table:
    """A table of the report, narrow enough for 80 columns: one column of labels, a line above each group of rows."""
    table = Table(title=results.title, caption=results.note, box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    groups = results.num_labels - 1
    table.add_column(results.header[groups])
    for heading in results.header[results.num_labels :]:
        table.add_column(heading, justify="right")
    before: tuple[str, ...] = ()
    for row in results.rows:
        if row[:groups] != before:
            table.add_section()
            before = row[:groups]
            table.add_row(Text(", ".join(before), style="bold"))
        table.add_row(*(Text(cell.replace(" ± ", "±")) for cell in row[groups:]))
    return table


def ledger_table(verdicts: Sequence[ClaimResult]) -> Table:
    """The claims ledger."""
    table = Table(title="what the paper claims, and what this run shows", show_lines=True)
    for heading in ("claim", "the paper", "verdict", "numbers"):
        table.add_column(heading)
    colours = {True: "green", False: "red", None: "dim"}
    for verdict in verdicts:
        table.add_row(
            verdict.claim, verdict.says, Text(verdict.word, style=colours[verdict.reproduced]), verdict.numbers
        )
    return table


def repeats_table(tallies: Sequence[Tally]) -> Table:
    """The one ledger of several runs."""
    table = Table(title="what the paper claims, and how many runs reproduce it", show_lines=True)
    for heading in ("claim", "the paper", "reproduced in", "not reproduced from seed"):
        table.add_column(heading)
    for tally in tallies:
        colour = "dim" if not tally.judged else "green" if not tally.missed else "yellow" if tally.reproduced else "red"
        missed = ", ".join(map(str, tally.missed))
        table.add_row(tally.claim, tally.says, Text(tally.words, style=colour), missed)
    return table


def drive_columns(drives: Sequence[Drive], step: int) -> Columns:
    """All drives at one moment, side by side."""
    panels = []
    for drive in drives:
        text = Text()
        for line in terminal_lines(drive, step):
            for signs, colour in line:
                text.append(signs * 2, Style(bgcolor=f"rgb({colour[0]},{colour[1]},{colour[2]})", bold=True))
            text.append("\n")
        frame = drive.frames[step]
        text.append(f"{frame.action}\n{caption(frame)}")
        panels.append(Panel(text, title=drive.title, width=38))  # two fit a terminal of 80 columns
    return Columns(panels)


def look_table(levels: Sequence[str], looks: Sequence[DemoResult]) -> Table:
    """What each level does on familiar and on novel images."""
    table = Table(title="asking for help, each image on its own", caption="mean probability, percent")
    for heading in ("images", "what it does", *levels):
        table.add_column(heading, justify="left" if heading in ("images", "what it does") else "right")
    for look in looks:
        named = {"names the digit": look.correct, "asks for help": look.help}
        for what, shares in named.items():
            if shares is not None:
                table.add_row(f"{look.num_images} {look.images}", what, *(f"{100 * share:.1f}" for share in shares))
    return table


def courier_table(levels: Sequence[str], shares: Mapping[str, Sequence[float]], certificate: Certificate) -> Table:
    """The caution dial of the courier: which way each level takes, with its certificate."""
    table = Table(
        title="the caution dial: which way the courier takes", caption="value and bound are normalised returns"
    )
    for heading in ("level", *shares, "value", "bound for all", "gap"):
        table.add_column(heading, justify="right")
    for row, level in enumerate(levels):
        numbers = [f"{float(part[row]):.4f}" for part in (certificate.lower, certificate.upper, certificate.gap)]
        table.add_row(level, *(f"{100 * share[row]:.1f} %" for share in shares.values()), *numbers)
    return table


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Each kind of work, the plain way and ours."""
    table = Table(title="the same work twice", caption="x: how many times as long the plain way takes")
    for heading in ("work", "the plain way", "takes", "ours", "x"):
        table.add_column(heading, justify="left" if heading in ("work", "the plain way") else "right")
    for one in comparisons:
        ratio = f"{one.ratio:.0f}" if one.ratio >= 10 else f"{one.ratio:.1f}"
        table.add_row(one.work, one.plain_way, brief(one.plain), brief(one.ours), ratio)
    return table


def estimate_table(estimates: Mapping[str, Mapping[str, float]]) -> Table:
    """About how long each task takes at each scale."""
    table = Table(title="about how long 'cautious reproduce TASK --scale ...' will take here")
    for heading in ("task", *next(iter(estimates.values()))):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    for task, scales in estimates.items():
        table.add_row(task, *(brief(seconds) for seconds in scales.values()))
    return table


def diagnosis_table(diagnosis: Diagnosis) -> Table:
    """How a belief does on familiar states that were kept back, and on made-up ones."""
    table = Table(title=f"a look at the belief, on {diagnosis.num_states} familiar states that no model has seen")
    for heading in ("what", "in units of the reward"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, value in {
        "guessing each action's mean is off by": diagnosis.reward_deviation,
        "the models' mean is off by": diagnosis.error,
        "a single model is off by": diagnosis.member_error,
        "the models differ by": diagnosis.disagreement,
        "and on made-up states, like nothing seen, by": diagnosis.unfamiliar_disagreement,
    }.items():
        table.add_row(what, f"{value:.3g}")
    if diagnosis.num_unfamiliar:
        kinds = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share, _ in diagnosis.departures)
        table.caption = (
            f"1-of-20 takes another action than ordinarily on {100 * diagnosis.unfamiliar_departures:.0f} % of "
            f"{diagnosis.num_unfamiliar} made-up rows that are far from all familiar ones ({kinds})"
        )
    return table


def brief(seconds: float) -> str:
    """A time to two digits in the unit that suits it."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3)):
        if seconds >= size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{float(f'{seconds * 1e6:.2g}'):g} µs"
