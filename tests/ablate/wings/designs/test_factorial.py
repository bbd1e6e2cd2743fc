"""Designs against the tables of Montgomery and of Box, Hunter and Hunter."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.wings.designs.factorial import design, design_for

TABLE = [
    *((3, 4, 3), (4, 8, 4), (5, 16, 5), (5, 8, 3), (6, 32, 6), (6, 16, 4), (6, 8, 3), (7, 64, 7), (7, 32, 4)),
    *((7, 16, 4), (7, 8, 3), (8, 64, 5), (8, 32, 4), (8, 16, 4), (9, 32, 4), (9, 16, 3), (10, 32, 4), (10, 16, 3)),
    *((11, 16, 3), (15, 16, 3)),
]
"""Factors, runs and resolution: Montgomery's table of recommended 2^(k−p) designs."""


@pytest.mark.parametrize(("factors", "runs", "resolution"), TABLE)
def test_resolution_is_that_of_the_table(factors: int, runs: int, resolution: int) -> None:
    found = design([chr(65 + i) for i in range(factors)], runs)
    assert found.resolution == resolution
    assert len(found.words) == 2**factors // runs - 1
    np.testing.assert_array_equal(found.levels.T @ found.levels, runs * np.eye(factors))
    assert (found.levels[0] == -1).all()
    for word in found.words:
        product = found.levels[:, [i for i in range(factors) if word >> i & 1]].prod(axis=1)
        assert (product == (-1) ** word.bit_count()).all()


@pytest.mark.parametrize(
    ("factors", "runs", "lengths"),
    [(5, 8, [3, 3, 4]), (6, 16, [4, 4, 4]), (7, 32, [4, 5, 5]), (8, 64, [5, 5, 6]), (8, 32, [4, 4, 4, 5, 5, 5, 5])],
)
def test_aberration_is_least(factors: int, runs: int, lengths: list[int]) -> None:
    """Word lengths of the minimum-aberration designs, by Fries and Hunter 1980."""
    found = design([chr(65 + i) for i in range(factors)], runs)
    assert [word.bit_count() for word in found.words] == lengths


def test_aliases_of_a_half_fraction() -> None:
    """2^(4−1), I = ABCD."""
    found = design("ABCD", 8)
    assert found.aliases(("A",)) == ()
    assert found.aliases(("A",), longest=3) == (("B", "C", "D"),)
    assert found.alias_text() == ("A×B = C×D", "A×C = B×D", "A×D = B×C")


def test_aliases_of_a_saturated_design_name_main_effects() -> None:
    found = design(["norm", "ffn", "bias"], 4)
    assert found.alias_text() == ("norm = −ffn×bias", "ffn = −norm×bias", "bias = −norm×ffn")


def test_an_order_of_the_factors_tells_chosen_interactions_apart() -> None:
    """A 2^(6−2) design has chains of two-factor interactions: of one chain, both can be told apart in another order."""
    found = design("ABCDEF", 16)
    chosen = next((("A", other), found.aliases(("A", other))[0]) for other in "BCDEF" if found.aliases(("A", other)))
    assert found.aliased(chosen) == chosen
    apart = design_for("ABCDEF", 16, chosen)
    columns = np.array([apart.contrast(effect) for effect in (*((factor,) for factor in "ABCDEF"), *chosen)])
    np.testing.assert_array_equal(columns @ columns.T, 16 * np.eye(8))


def test_interactions_that_no_order_tells_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="A is aliased with B×C"):
        design_for("ABC", 4, [("B", "C")])


def test_a_full_design_has_every_combination_and_no_alias() -> None:
    found = design("ABC", 8)
    assert found.resolution is None
    assert found.alias_text(longest=3) == ()
    assert len({tuple(run) for run in found.levels}) == 8
    assert found.levels[:3].tolist() == [[-1, -1, -1], [1, -1, -1], [-1, 1, -1]]


@pytest.mark.parametrize(("factors", "runs"), [(4, 12), (4, 32), (8, 8), (0, 1)])
def test_impossible_designs_are_refused(factors: int, runs: int) -> None:
    with pytest.raises(ValueError, match="no two-level design"):
        design([str(i) for i in range(factors)], runs)


def test_designs_that_would_take_long_to_find_are_refused() -> None:
    with pytest.raises(ValueError, match="too many designs of 20 factors in 32 runs"):
        design([str(i) for i in range(20)], 32)
