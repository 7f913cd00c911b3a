"""A saved policy in a service: how long loading takes, and one row after that, beside a scikit-learn forest.

python -m benchmarks.latency [--processes 5]

Each process begins with nothing loaded, reads what was saved, and answers one row at a time, a dictionary as a service has it.
Ours: 100 models with their priors, trained on 4,000 rows of 8 numbers and 2 categories. The forest: 100 trees on the same rows,
behind a pipeline of scikit-learn that encodes a pandas frame of one row; and beside it given an array that is encoded already.
Printed are medians over the processes, by the clock and as CPU time. Torch is imported first and counted apart. The forest is
fitted in its process, which does not count: nothing here reads a pickle.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median

import numpy as np

from cautious_paper.experiments.store import provenance_line

COUNT = 300
"""Rows that each process answers, one at a time."""
CHILD = """
import json, sys, time
folder, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = json.load(open(f"{folder}/rows.json"))
taken, last = {}, [time.perf_counter(), time.process_time()]
def lap(what):
    now = [time.perf_counter(), time.process_time()]
    taken[what] = [now[0] - last[0], now[1] - last[1]]
    last[:] = [time.perf_counter(), time.process_time()]
if who == "ours":
    import torch
    lap("import torch")
    from cautious import CautiousPolicy
    lap("import")
    policy = CautiousPolicy.load(f"{folder}/policy")
    lap("load")
    ways = {"row": lambda row: policy.decide(row)}
else:
    import pandas
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder
    lap("import")
    past = pandas.DataFrame(json.load(open(f"{folder}/past.json")))
    good = past.pop("good")
    encoder = make_column_transformer((OneHotEncoder(), ["site", "kind"]), remainder="passthrough")
    model = make_pipeline(encoder, RandomForestClassifier(100, random_state=0)).fit(past, good)
    arrays = model[:-1].transform(pandas.DataFrame(rows))
    ways = {"row": lambda row: model.predict_proba(pandas.DataFrame([row])), "array": lambda row: model[-1].predict_proba(row)}
last[:] = [time.perf_counter(), time.process_time()]
for name, answer in ways.items():
    given = arrays[:, None] if name == "array" else rows
    answer(given[0])
    lap(f"first {name}")
    each = []
    for row in given[1:count]:
        started = time.perf_counter(), time.process_time()
        answer(row)
        each.append([time.perf_counter() - started[0], time.process_time() - started[1]])
    taken[name] = [sorted(part)[len(each) // 2] for part in zip(*each)]
    lap("rest")
print(json.dumps(taken))
"""


def prepare(folder: Path) -> None:
    """Train and save the policy, and the rows: those of the training, and those to ask about, half with one number far off."""
    import pandas

    from cautious import CautiousPolicy, fit_ensemble

    rng = np.random.default_rng(0)
    table = pandas.DataFrame(rng.normal(size=(4000, 8)), columns=[f"x{number}" for number in range(8)])
    table["site"], table["kind"] = rng.choice(["north", "south"], 4000), rng.choice(["a", "b", "c", "d"], 4000)
    good = (table["x0"] + table["x1"] > 0).to_numpy()
    paid = pandas.DataFrame({"accept": np.where(good, 1.0, -1.0), "reject": 0.0, "refer": -0.1 + 0 * good})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        belief = fit_ensemble(table, paid, num_models=100, num_epochs=5, progress=False)
    CautiousPolicy(belief, "5-of-20").save(folder / "policy")
    past = table.assign(good=good).to_dict(orient="list")
    (folder / "past.json").write_text(json.dumps(past), encoding="utf-8")
    asked = table[:COUNT].copy()
    asked.loc[::2, "x2"] += 8
    (folder / "rows.json").write_text(json.dumps(asked.to_dict(orient="records")), encoding="utf-8")


def measured(folder: Path, who: str, processes: int) -> dict[str, list[float]]:
    """Medians over processes of seconds by the clock and of CPU time."""
    found: list[dict[str, list[float]]] = []
    for _ in range(processes):
        call = [sys.executable, "-c", CHILD, str(folder), who, str(COUNT)]
        found.append(json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE).stdout))
    return {what: [median(each[what][part] for each in found) for part in (0, 1)] for what in found[0]}


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    options = parser.parse_args()
    print(provenance_line(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        ours, forest = (measured(Path(folder), who, options.processes) for who in ("ours", "forest"))
    for name, taken in (("ours", ours), ("forest", forest)):
        if name == "ours":
            ready = taken["import"][0] + taken["load"][0]
            print(
                f"{name:<7} ready after {ready:.2f} s ({ready + taken['import torch'][0]:.2f} with torch), of which reading "
                f"the files {taken['load'][0]:.3f} s"
            )
        else:
            print(f"{name:<7} imported after {taken['import'][0]:.2f} s")
        for way in ("row", "array"):
            if way in taken:
                first, clock, cpu = taken[f"first {way}"][0], *taken[way]
                print(
                    f"{'':<7} one {way}: first {1e3 * first:.0f} ms, then {1e3 * clock:.2f} ms, CPU time {1e3 * cpu:.2f} ms"
                )


if __name__ == "__main__":
    main()
