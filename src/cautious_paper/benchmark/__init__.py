"""A benchmark that others can report on: versioned problems with familiar and novel splits, and scores to compare with.

    from cautious import compare
    from cautious_paper import benchmark

    problem = benchmark.make("driving-v1", split="novel", seed=0)
    frame = benchmark.run({"mine": my_method}, seeds=10)
    print(benchmark.table(frame))

registry    the names of all problems; `make`
paper       images and driving, with the beliefs that come with the package
grounds     lake, cliff, taxi and terrains: unseen ground
doubts      shop and slippery lake: dynamics in doubt
splits      what rules that go by novelty need of both splits
opinions    what models say about ground: the frozen belief of `grounds`
scores      methods, runs, the reference scores and the table
prints      numbers by which a problem is recognised
"""

from cautious_paper.benchmark.prints import fingerprint
from cautious_paper.benchmark.registry import IDS, SPLITS, make, problems
from cautious_paper.benchmark.scores import methods, reference, run, table

__all__ = ["IDS", "SPLITS", "make", "problems", "methods", "run", "table", "reference", "fingerprint"]
