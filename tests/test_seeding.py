from __future__ import annotations

import numpy as np
import pytest

from cautious.errors import InvalidInputError
from cautious.seeding import derive_seed, make_rng


def test_a_stream_depends_on_its_whole_address_and_on_nothing_else():
    first = make_rng(1, "queue", 2).random(4)
    make_rng(1, "other").random(100)
    assert np.array_equal(first, make_rng(1, "queue", 2).random(4))
    others = [make_rng(0, "queue", 2), make_rng(1, "queue", 3), make_rng(1, "queues", 2), make_rng(1, "queue", "2")]
    assert not any(np.array_equal(first, other.random(4)) for other in others)


def test_seeds_fit_a_torch_generator():
    assert all(0 <= derive_seed(0, i) < 2**63 for i in range(1000))


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, None])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(InvalidInputError, match="seed="):
        derive_seed(seed)
