"""The tool that counts lines of code, against files counted by hand."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from code_size import Counts, count, summary

FILE = '''"""A docstring
of two lines."""

import math  # beside code

# alone
LIMIT = 3
"""About the attribute above."""


def f(x):
    """One line."""
    text = """a value
    of two lines"""
    return math.sqrt(
        x
    )
'''


def test_docstrings_comments_and_blank_lines_are_no_code():
    # import, LIMIT, def, the two lines of `text`, and the three of `return`
    assert count(FILE) == Counts(lines=17, code=8, comments=2)


def test_packages_are_counted_apart_and_together():
    counts = {
        "src/cautious/rl/value.py": Counts(10, 7, 0),
        "src/cautious/risk.py": Counts(20, 3, 4),
        "src/cautious_paper/worlds/driving.py": Counts(10, 5, 0),
        "tests/test_a.py": Counts(9, 6, 1),
    }
    figures = summary(counts)
    assert figures["library: lines of code"] == 10
    assert figures["reproduction: lines of code"] == 5
    assert figures["both packages: lines of code"] == 15
    assert (figures["library: files"], figures["both packages: files"]) == (2, 3)
    assert figures["library: median file, lines of all kinds"] == 15
    assert figures["both packages: lines with a comment, percent"] == 10
    assert figures["tests: lines of code per line of the packages"] == 6 / 15
