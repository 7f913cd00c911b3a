"""Image runs made up by hand: stores with the schema of real ones and numbers that a test chooses."""

from __future__ import annotations

import numpy as np
import torch

from cautious.types import Regime
from cautious_paper.experiments.images.image_experiment import Stage
from cautious_paper.experiments.images.settings import image_experiment_at
from cautious_paper.experiments.store import Store
from cautious_paper.report.paper import paper_table
from cautious_paper.worlds.image_tasks import image_task

LEVELS = ("1-of-20", "1-of-10", "5-of-10", "10-of-10")
HELP = {"all": (0.29, 0.2, 0.1, 0.08), "single": (0.89, 0.8, 0.5, 0.08), "optim": 0.015}
"""Help on novel images as the paper has it."""
INDEX = {"all": (3.0, 3.5, 4.2, 5.0), "single": (2.0, 2.7, 4.0, 5.0), "optim": 5.1}
REGIMES = {"all": Regime.ALL_STATES, "single": Regime.SINGLE_STATE}
NUM_LABELS = {"digits": 10, "fashion": 10, "letters": 26}


class FakeRun:
    """Builds a store; by default one that reproduces every claim at the paper's sizes."""

    def __init__(
        self,
        folder,
        task,
        *,
        setting="main",
        letters=True,
        num_models=None,
        num_digits=60_000,
        num_iterations=100,
        runs=3,
    ):
        self.task, self.runs, self.num_iterations = image_task(task), runs, num_iterations
        experiment = image_experiment_at(task, "paper", setting=setting)
        settings = experiment.as_settings()
        self.num_dial_images = experiment.num_dial_images
        for variant in settings["variants"].values():
            variant["training"]["num_models"] = num_models or variant["training"]["num_models"]
        self.sets = ["digits", "fashion", *(["letters"] if letters else [])]
        sizes = {"digits": 10_000, "fashion": 10_000, "letters": 20_800}
        settings["data"] = {"digits, train": f"{num_digits} images, 0, made up"} | {
            f"{name}, test": f"{sizes[name]} images, 0, made up" for name in self.sets
        }
        self.variants = list(settings["variants"])
        self.bits = (True, False) if self.task.help_bit else (None,)
        self.store = Store.create(folder, task, settings)

    def behaviour(self, variant, images, bit=None, *, seed=0, spread=0.0, samples=False, **quantities):
        """Save one stage; a quantity is {"all": [L], "single": [L], "optim": x}, the same in every run but for `spread`."""
        rng = np.random.default_rng(seed)
        both = {name: {"index": INDEX} | quantities for name in REGIMES}
        numbers = {"levels": list(LEVELS), "behaviour": {}, "optim": {}}
        arrays = {}
        for name, regime in REGIMES.items():
            values = {}
            for quantity, chosen in self._complete(both[name]).items():
                noise = spread * rng.standard_normal((len(LEVELS), self.runs))
                values[quantity] = (np.array(chosen[name])[:, None] * (1 + noise)).tolist()
                numbers["optim"][quantity] = {"mean": chosen["optim"], "half_width": 0.02 * chosen["optim"]}
                arrays[f"optim-{quantity}"] = torch.full((40,), float(chosen["optim"]), dtype=torch.float64)
            numbers["behaviour"][str(regime)] = values
            arrays |= self._tables(regime, images, values, rng)
        arrays |= self._optim_tables(images, numbers["optim"], rng) | self._samples(images, rng)
        self.store.save(Stage(variant, images, bit).name, numbers, arrays)

    def _complete(self, quantities):
        """Both readings of a frequency, and of the index, from one."""
        found = dict(quantities)
        found.setdefault("index_help_as_zero", found["index"])
        for name in ("help", "correct"):
            if name in found:
                chosen = found.pop(name)
                found |= {f"{name}_probability": chosen, f"{name}_share": chosen}
        return found

    def _spread_out(self, asked, labels, rng):
        """[labels, A]: so much help, the rest over the other actions."""
        rest = rng.dirichlet(np.full(10, 0.3), size=labels)
        if self.task.help_action is None:
            return torch.from_numpy(rest)
        asked = np.broadcast_to(asked, (labels,))[:, None]
        return torch.from_numpy(np.concatenate([(1 - asked) * rest, asked], axis=1))

    def _tables(self, regime, images, values, rng):
        asked = np.array(values.get("help_probability", np.zeros((len(LEVELS), self.runs)))).mean(axis=1).clip(0, 1)
        labels = NUM_LABELS[images]
        by_label = []
        for level in asked:
            own = np.full(labels, level)
            if images == "letters":
                own[[ord(letter) - ord("a") for letter in "osiljz"]] *= 0.3
            by_label.append(self._spread_out(own, labels, rng))
        table = torch.stack(by_label)
        t = np.arange(1, self.num_iterations + 1)
        curve = 1 - np.exp(-t / 8) + 0.01 * rng.standard_normal((len(LEVELS), self.runs, len(t)))
        return {
            f"{regime}-by_label": table,
            f"{regime}-actions": table.mean(dim=1)[:, None].expand(-1, self.runs, -1),
            f"{regime}-sampled_value": torch.from_numpy(curve * np.array([0.2, 0.3, 0.6, 0.9])[:, None, None]),
        }

    def _optim_tables(self, images, optim, rng):
        asked = optim.get("help_probability", {"mean": 0.0})["mean"]
        table = self._spread_out(asked, NUM_LABELS[images], rng).float()
        return {"optim-by_label": table, "optim-actions": table.mean(dim=0)}

    def _samples(self, images, rng):
        actions = self.task.num_actions
        policies = torch.from_numpy(rng.dirichlet(np.ones(actions), size=(2, 2, 8)))
        return {
            "samples-images": torch.from_numpy(rng.integers(0, 256, (2, 8, 28, 28), dtype=np.uint8)),
            "samples-labels": torch.from_numpy(rng.integers(0, NUM_LABELS[images], (2, 8))),
            "samples-policy": policies[0],
            "samples-ordinary": policies[1],
            "samples-quantiles": torch.from_numpy(np.sort(rng.standard_normal((2, 8, 5, actions)), axis=2)),
        }

    def studies(self, images, bit=None):
        """A dial and a curve over the number of models."""
        names = ["index", "index_help_as_zero", *(["help_probability"] if self.task.help_action else [])]
        dial = {str(r): {name: np.linspace(0.9, 0.1, 20).tolist() for name in names} for r in Regime}
        self.store.save(
            Stage(self.variants[0], images, bit, "dial").name,
            {"levels": [f"{k}-of-20" for k in range(1, 21)], "behaviour": dial, "gap": {}},
        )
        curve = {name: [[0.5, 0.9], [0.7, 0.8], [0.75, 0.76]] for name in names}
        models = {str(r): {"queue": curve, "exact": curve} for r in Regime}
        self.store.save(
            Stage(self.variants[0], images, bit, "models").name,
            {"sizes": [20, 200, 2000], "level": "1-of-20", "behaviour": models},
        )


def scaled(chosen, factor):
    """A quantity times a number, at most 1."""
    return {
        name: min(1.0, value * factor) if name == "optim" else tuple(min(1.0, x * factor) for x in value)
        for name, value in chosen.items()
    }


def from_paper(cells_all, cells_single):
    """The paper's rows of one quantity in both regimes as fractions; optim as it stands in the first, or small."""
    optim = cells_all.get("optim")
    return {
        "all": tuple(cells_all[level].mean / 100 for level in LEVELS),
        "single": tuple(cells_single[level].mean / 100 for level in LEVELS),
        "optim": optim.mean / 100 if optim else 0.98,
    }


def paper_digits(run, variant, bit):
    """Correct and help on digits exactly as the paper prints them."""
    if run.task.name == "ask-for-help":
        cells = paper_table(f"last_action_{variant.split('-')[1]}").cells
        both = cells["all-images"], cells["single-image"]
    elif run.task.name == "help-if-available":
        group = "help available" if bit else "help unavailable"
        both = paper_table("bit_TEST").cells[group], paper_table("bit_test").cells[group]
    else:
        group = f"{variant.split('-')[1]} %"
        both = paper_table("last_action_std_TEST").cells[group], paper_table("last_action_std_test").cells[group]
    return {name: from_paper(both[0][name], both[1][name]) for name in ("correct", "help")}


NONE = {"all": (0.0,) * 4, "single": (0.0,) * 4, "optim": 0.0}
WITHOUT = {"all": (4.0, 4.2, 4.6, 5.0), "single": (3.5, 3.8, 4.4, 5.0), "optim": 5.1}
"""Index where help is unavailable: falls less."""
BY_VARIANT = {
    "ask-for-help": {
        ("help-0.1", "fashion"): scaled(HELP, 0.5),
        ("help-0.25", "fashion"): HELP,
        ("help-0.5", "fashion"): {"all": (0.6, 0.5, 0.3, 0.2), "single": (0.99, 0.95, 0.8, 0.2), "optim": 0.1},
        ("help-0.1", "letters"): {"all": (0.05, 0.04, 0.02, 0.01), "single": (0.3, 0.2, 0.1, 0.01), "optim": 0.005},
        ("help-0.25", "letters"): {"all": (0.06, 0.05, 0.04, 0.03), "single": (0.68, 0.5, 0.3, 0.03), "optim": 0.0098},
        ("help-0.5", "letters"): {"all": (0.4, 0.3, 0.2, 0.1), "single": (0.97, 0.9, 0.8, 0.1), "optim": 0.05},
    },
    "help-if-available": {
        (name, images): scaled({"all": (0.4, 0.3, 0.2, 0.03), "single": (0.8, 0.7, 0.4, 0.03), "optim": 0.02}, factor)
        for name, factor in (("help-0.02", 0.5), ("help-0.05", 1), ("help-0.2", 1.1))
        for images in ("fashion", "letters")
    },
    "data-extent": {
        (name, images): chosen
        for name, chosen in (
            ("extent-1", {"all": (0.1,) * 4, "single": (0.1, 0.12, 0.11, 0.1), "optim": 0.1}),
            ("extent-10", HELP),
            ("extent-100", scaled(HELP, 0.6)),
        )
        for images in ("fashion", "letters")
    },
}


def bearing_out(folder, task, **options):
    """A complete run that reproduces every claim of its task."""
    run = FakeRun(folder, task, **options)
    for variant in run.variants:
        for images in run.sets:
            for bit in run.bits:
                run.behaviour(variant, images, bit, **usual(run, variant, images, bit))
                if variant == run.variants[0] and run.num_dial_images:
                    run.studies(images, bit)
    run.store.save(f"belief-{run.variants[0]}", {"seconds": 3600.0})
    return run


def usual(run, variant, images, bit=None):
    """The quantities of one stage of such a run."""
    if run.task.help_action is None:
        return {"correct": {"all": (0.98,) * 4, "single": (0.97,) * 4, "optim": 0.98}} if images == "digits" else {}
    if images == "digits":
        return paper_digits(run, variant, bit)
    if bit is False:
        return {"help": NONE, "index": WITHOUT}
    return {"help": BY_VARIANT[run.task.name][variant.split("-draw-")[0], images]}
