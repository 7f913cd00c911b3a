"""`CautiousPolicy.decide`: how long one observation and batches take, against loops over models, states and iterations.

python -m benchmarks.deciding
"""

from __future__ import annotations

from cautious.benchmarking.measures import deciding, image_belief, vector_belief

COUNTS = {1: (1, 15), 32: (8, 3), 1000: (16, 1)}
"""Observations -> (observations of the plain way, which is scaled up; calls of which the median counts)."""


def bench_deciding() -> list[str]:
    """Milliseconds a call, and observations a second."""
    lines = ["decide at 1-of-20, 100 models, against loops of 200 iterations: milliseconds per call"]
    beliefs = {
        "clothes (shipped, ask-for-help)": image_belief(),
        "digits (the same)": image_belief("digits"),
        "vectors of 8 numbers": vector_belief(),
    }
    for name, twice in beliefs.items():
        for count, (plain_count, repeats) in COUNTS.items():
            found = deciding(twice, count, plain_count, repeats)
            lines.append(
                f"  {name:<31} {count:5,} at a time: loops {1e3 * found.plain:9.1f}, ours {1e3 * found.ours:9.1f}  "
                f"{found.ratio:5.1f} x   {count / found.ours:7.0f} a second"
            )
    return lines


if __name__ == "__main__":
    print("\n".join(bench_deciding()))
