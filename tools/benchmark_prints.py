"""Write the prints of every problem of the benchmark: python tools/benchmark_prints.py. Only for new versions.

`tests/benchmark/test_versions.py` compares what `make` gives with `tests/benchmark/prints.json`. A problem that is there
already is not written again: a change of its numbers needs a name with the next version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cautious_paper import benchmark

PATH = Path(__file__).parents[1] / "tests" / "benchmark" / "prints.json"
SEEDS = (0, 1)


def main() -> None:
    """Add what is missing."""
    known = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    for id in benchmark.IDS:
        for split in benchmark.SPLITS:
            for seed in SEEDS:
                if f"{id} {split} {seed}" not in known:
                    known[f"{id} {split} {seed}"] = benchmark.fingerprint(benchmark.make(id, split, seed))
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(known[key])}" for key in known) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
