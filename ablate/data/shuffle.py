"""The order of training windows: a seeded permutation, one element at a time, without a table."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

ROUNDS = 4


def permuted(index: NDArray[np.uint64], size: int, key: tuple[int, ...]) -> NDArray[np.uint64]:
    """π(index), where π is a permutation of 0 … size−1 that `key` chooses.

    On k-bit integers (size ≤ 2^k < 2·size), multiplying by an odd number, adding a constant, and x ^= x >> ⌈k/2⌉ are
    each invertible, hence so are rounds of them; a value that lands beyond `size` goes through again until it lands
    inside (cycle walking; Black & Rogaway 2002), fewer than two passes on average. Costs no memory, whatever `size`.
    """
    bits = max(1, (size - 1).bit_length())
    value = _scrambled(index, bits, key)
    outside = np.flatnonzero(value >= size)
    while outside.size:
        value[outside] = _scrambled(value[outside], bits, key)
        outside = outside[value[outside] >= size]
    return value


def _scrambled(x: NDArray[np.uint64], bits: int, key: tuple[int, ...]) -> NDArray[np.uint64]:
    mask = np.uint64((1 << bits) - 1)
    half = np.uint64((bits + 1) // 2)
    for factor, addend in _round_keys(key):
        x = (x * factor + addend) & mask
        x ^= x >> half
    return x


@lru_cache(maxsize=64)
def offset(below: int, key: tuple[int, ...]) -> int:
    """A number from 0 to `below` − 1 that `key` chooses, whatever permutation it chooses too."""
    return int(np.random.default_rng((*key, below)).integers(below))


@lru_cache(maxsize=64)
def _round_keys(key: tuple[int, ...]) -> tuple[tuple[np.uint64, np.uint64], ...]:
    words = np.random.SeedSequence(key).generate_state(2 * ROUNDS, np.uint64)
    return tuple((words[2 * i] | np.uint64(1), words[2 * i + 1]) for i in range(ROUNDS))
