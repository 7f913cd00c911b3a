"""Each model's own batches of an epoch, found inside a kernel: the same sets as `beliefs.training.loop.shuffles` gives.

A step sums over its batch, so that only the set matters, not the order: thresholds between batches are enough, no sorting.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cautious.seeding import SPLITMIX_FACTORS, SPLITMIX_STEP

STEP = tl.constexpr(SPLITMIX_STEP)
FACTOR_1, FACTOR_2 = (tl.constexpr(factor) for factor in SPLITMIX_FACTORS)


@triton.jit
def _mix(x):
    """SplitMix64's finaliser, as in `beliefs.training.loop`."""
    x = (x ^ (x >> 30)) * FACTOR_1
    x = (x ^ (x >> 27)) * FACTOR_2
    return x ^ (x >> 31)


@triton.jit
def _threshold(keys, rank):
    """A number with exactly `rank` keys below it, by bisection: keys are distinct, and those that do not count largest."""
    low = tl.full([], -0x8000000000000000, tl.int64)
    high = tl.full([], 0x7FFFFFFFFFFFFFFF, tl.int64)
    middle = tl.full([], 0, tl.int64)
    below = tl.sum((keys < middle).to(tl.int32))
    while below != rank:
        low = tl.where(below < rank, middle, low)
        high = tl.where(below < rank, high, middle)
        middle = (low & high) + ((low ^ high) >> 1)  # the mean of two, without overflow
        below = tl.sum((keys < middle).to(tl.int32))
    return middle


@triton.jit
def write_batches(
    seed, epoch, samples, heads, order, counts, num_pairs, batch_size, num_batches,
    CAPACITY: tl.constexpr,
):  # fmt: skip
    """Sort the pairs into batches, each by head.

    A pair is in batch b if the rank of its hash of (seed, epoch, sample) is in [b batch_size, (b+1) batch_size).

    Args:
        seed: The model's seed for shuffles, int64.
        epoch: Which pass over the data.
        samples: Each pair's number in the training data, [num_pairs], int32.
        heads: Each pair's head, [num_pairs], int32, never falling.
        order: Out, [num_pairs], int32: pairs of the first batch in their own order, then of the second, and so on.
        counts: Out, [num_batches], int64: pairs of each head in each batch, 16 bits per head.
        num_pairs: P.
        batch_size: Pairs in every batch but the last.
        num_batches: Batches in an epoch.
        CAPACITY: P, filled up to a power of two.
    """
    pair = tl.arange(0, CAPACITY) + (epoch >> 30)  # + 0: keeps indices from waiting in registers between epochs
    real = pair < num_pairs
    # The same number for each (model, epoch, sample) as `_hashes`: batches are then those of the plain path.
    counter = (epoch.to(tl.int64) * num_pairs + tl.load(samples + pair, mask=real, other=0)).to(tl.uint64)
    keys = _mix(_mix(seed.to(tl.uint64)) + counter * STEP).to(tl.int64, bitcast=True)
    largest = tl.full([], 0x7FFFFFFFFFFFFFFF, tl.int64)
    keys = tl.where(real, keys, largest)  # what only fills up to a power of two comes after all pairs
    one = tl.full([CAPACITY], 1, tl.int64) << (16 * tl.load(heads + pair, mask=real, other=0)).to(tl.int64)
    done = real & False
    for batch in tl.range(num_batches, num_stages=1):
        # All pairs up to the end of this batch, less those of the batches before.
        rank = tl.minimum((batch + 1) * batch_size, num_pairs)
        reached = real
        if rank < num_pairs:  # the last batch is whatever is left: no threshold to search for
            reached = keys < _threshold(keys, rank)
        member = reached & (done == False)  # noqa: E712
        place = tl.cumsum(member.to(tl.int32), 0) - 1
        tl.store(order + batch * batch_size + place, pair, mask=member)
        tl.store(counts + batch, tl.sum(tl.where(member, one, 0)))
        done = reached
