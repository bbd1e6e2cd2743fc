"""The arms' colours, as eyes of other kinds see them, and on both grounds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from reports.page.figures.drawing import PALETTE

Floats = NDArray[np.float64]

SEEN = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Matrices on linear sRGB, at severity 1 (Machado, Oliveira and Fernandes 2009, doi 10.1109/TVCG.2009.113)."""
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> Floats:
    """Linear sRGB of `#rrggbb` (IEC 61966-2-1)."""
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    """CIE 1976 L*a*b* under D65."""
    t = XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(eyes: str, colours: tuple[str, ...]) -> float:
    """The least ΔE (CIE 1976) between any two."""
    seen = [lab(np.asarray(SEEN[eyes]) @ linear(colour)) for colour in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))


def test_the_measure_itself() -> None:
    """White and the red of sRGB, as published; greys look alike to all eyes; olive and vermilion do not."""
    assert lab(linear("#ffffff")) == pytest.approx([100, 0, 0], abs=0.01)
    assert lab(linear("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    for matrix in SEEN.values():
        assert np.sum(matrix, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    olive_and_vermilion = ("#8f8a1c", "#cf4a1e")
    assert nearest("all cones", olive_and_vermilion) > 40
    assert nearest("deuteranopia", olive_and_vermilion) < 5


@pytest.mark.parametrize("eyes", SEEN)
def test_colours_are_told_apart(eyes: str) -> None:
    assert nearest(eyes, PALETTE) > 15
    assert nearest(eyes, PALETTE[:4]) > 19


@pytest.mark.parametrize("ground", ["#ffffff", "#1b1f23"])
def test_colours_stand_out_from_the_ground(ground: str) -> None:
    """WCAG 2.1, 1.4.11: at least 3 to 1."""
    behind = XYZ[1] @ linear(ground)
    for colour in PALETTE:
        low, high = sorted((behind, XYZ[1] @ linear(colour)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour
