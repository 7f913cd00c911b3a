"""Models from the worst on, compiled: a stable sort whose order depends on the values alone."""

from __future__ import annotations

import numpy as np

from cautious.compiling import compiled

FEW_MODELS = 256
"""Most models that are sorted in buckets of their values; above, by digits, whose time is linear whatever the values are."""
BUCKETS = 256
"""Number of buckets: so many that few of 100 models share a bucket."""
DIGITS, DIGIT_BITS = 6, 11
"""Of the 64 bits that are sorted by."""
LOWEST = np.int64(-(2**63))


@compiled
def sorting_space(num_models):  # type: ignore[no-untyped-def]
    """Arrays for `sort_models`: `order` and `keys` [M], and `scratch`."""
    return np.empty(num_models, np.int64), np.zeros(num_models), np.empty(num_models + BUCKETS + 1, np.int32)


@compiled
def sort_models(order, values, keys, scratch):  # type: ignore[no-untyped-def]
    """Models from the worst on, ties by number, into `order`; neither way depends on how the models were ordered before.

    `keys` and `scratch` are overwritten (`sorting_space`).
    """
    if len(values) <= FEW_MODELS:
        _sort_in_buckets(order, values, keys, scratch)
    else:
        _sort_by_digits(order, values)


@compiled
def _sort_in_buckets(order, values, keys, scratch):  # type: ignore[no-untyped-def]
    """Buckets of equal width, models of one in the order of their numbers; then insertion, which finds little to move.

    The buckets divide the range of what was in `keys`, the sorted values of the policy before. Other ranges leave more to
    insertion, but give the same order.
    """
    num_models = len(values)
    places, counts = scratch[:num_models], scratch[num_models : num_models + BUCKETS + 1]
    low, reach = keys[0], keys[num_models - 1] - keys[0]
    scale = BUCKETS / reach if reach > 0.0 else 0.0
    for m in range(num_models):
        place = (values[m] - low) * scale
        place = place if place > 0.0 else 0.0  # NaN, too, where a scale is infinite
        places[m] = np.int32(place if place < BUCKETS - 1.0 else BUCKETS - 1.0)
    counts[:] = 0
    for m in range(num_models):
        counts[places[m] + 1] += 1
    before = np.int32(0)
    for bucket in range(1, BUCKETS + 1):
        before += counts[bucket]
        counts[bucket] = before
    for m in range(num_models):
        following = counts[places[m]]
        counts[places[m]] = following + 1
        order[following], keys[following] = m, values[m]
    for i in range(1, num_models):
        value = keys[i]
        if keys[i - 1] > value:
            m, empty = order[i], i
            while empty > 0 and keys[empty - 1] > value:
                keys[empty], order[empty] = keys[empty - 1], order[empty - 1]
                empty -= 1
            keys[empty], order[empty] = value, m


@compiled
def _sort_by_digits(order, values):  # type: ignore[no-untyped-def]
    """Radix sort: by each group of bits in turn, from the lowest on; time linear in the number of models."""
    num_models = len(values)
    keys, after = np.empty(num_models, np.uint64), np.empty(num_models, np.int64)
    counts = np.zeros((DIGITS, 1 << DIGIT_BITS), np.int32)
    bits = (values + 0.0).view(np.int64)  # -0.0 becomes 0.0, which is equal to it
    last = np.uint64((1 << DIGIT_BITS) - 1)
    for m in range(num_models):
        # As an unsigned whole number in the order of the values: positive ones above, negative ones from the other end.
        key = np.uint64(bits[m] ^ ((bits[m] >> 63) | LOWEST))
        keys[m] = key
        order[m] = m
        for digit in range(DIGITS):
            counts[digit, (key >> np.uint64(digit * DIGIT_BITS)) & last] += 1
    before = order
    for digit in range(DIGITS):
        shift, places = np.uint64(digit * DIGIT_BITS), counts[digit]
        if places[(keys[0] >> shift) & last] == num_models:
            continue  # all alike
        total = 0
        for i in range(len(places)):
            count = places[i]
            places[i] = total
            total += count
        for i in range(num_models):
            m = before[i]
            place = (keys[m] >> shift) & last
            after[places[place]] = m
            places[place] += 1
        before, after = after, before
    order[:] = before
