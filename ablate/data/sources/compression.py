"""Synthetic task: compression of a sequence into the model's state."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ablate.data.sources._synthetic import BLANK, Example, Graded, Level, asked_at
from ablate.data.sources.copying import MARK, SymbolsSource


class CompressionSource(SymbolsSource):
    """Reproduce a sequence after reading it once; the output is not fed back. After Poli et al. 2024 (MAD),
    arXiv:2403.17844.

    x₁ … xₙ, a mark, blanks: the target at the mark is x₁, at the i-th blank xᵢ₊₁. In the paper a separate decoder sees
    the mark's vector alone; here the model itself answers. A recurrent model has to hold the sequence in its state, as
    there; attention can look back at the sequence, an easier task. Chance is 1 / symbols.
    """

    source: Literal["compression"] = "compression"
    length: Graded = (8, 16, 32)
    """n: number of symbols to reproduce."""

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        length = level["length"]
        symbols = 2 + draw.integers(self.symbols, size=length)
        tokens = np.concatenate((symbols, [MARK], np.full(length - 1, BLANK)))
        return asked_at(tokens, dict(zip(range(length, 2 * length), symbols, strict=True)))
