"""Shared code of rotary schemes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from zoo.errors import SpecError, UnsupportedError, under
from zoo.kernels.compiling import is_compiling
from zoo.positions import Position, PositionLayer
from zoo.positions.scalings import Scaling, rotation
from zoo.settings.axis import Choice
from zoo.settings.field_tags import ValuesInTests
from zoo.site import ForwardPass

KEPT = 1024
"""Positions whose rotations are kept while decoding; the table starts at a multiple of this number."""


class Rotary(Position):
    """Pair i of a query or key at position m is rotated by m·θ_i, θ_i = base^(−2i/d), or θ' of `scaling`.

    `layout`: pair i is `half` (i, i + d/2), as in Llama, or `interleaved` (2i, 2i + 1), as in RoFormer and GPT-J. A
    `fraction` of the head's features, the first ones, is rotated: d of them, rounded up to whole pairs if d is odd, but
    with the odd d in θ, as in transformers.
    """

    base: Annotated[float, Field(ge=1), ValuesInTests()] = 10_000.0
    """Base of the frequencies θ_i = base^(−2i/d): a larger base rotates more slowly, for longer texts; with 1 all pairs
    rotate alike. Below 1, later pairs would rotate by more than a radian per token, too fast to resolve positions."""
    layout: Literal["half", "interleaved"] = "half"
    """Features that form pair i: `half`, i and i + d/2; `interleaved`, 2i and 2i + 1."""
    fraction: Annotated[float, Field(gt=0, le=1), ValuesInTests(0.34)] = 1.0
    """Share of a head's features, the first ones, that are rotated."""
    scaling: Annotated[Scaling, Choice("zoo.positions.scalings")] | None = None
    """Scaling of the frequencies for longer texts; null for none."""

    def check(self, head_dim: int) -> None:
        counted, turned = self.counted(head_dim), self.turned(head_dim)
        if not 0 < turned <= head_dim:
            raise SpecError("", f"RoPE rotates pairs: {counted} of a head's {head_dim} features cannot be rotated")
        with under("scaling"):
            if self.scaling is not None:
                self.scaling.check(counted, self.base)

    @property
    def score_factor(self) -> float:
        return 1.0 if self.scaling is None else self.scaling.score_factor

    @property
    def magnitude(self) -> float:
        """Factor on the rotated queries and keys."""
        return 1.0 if self.scaling is None else self.scaling.magnitude

    @property
    def by_length(self) -> bool:
        """Whether frequencies depend on the text's length."""
        return self.scaling is not None and self.scaling.by_length

    def counted(self, head_dim: int) -> int:
        """d in θ_i = base^(−2i/d): `fraction` of the head's features, rounded down."""
        return int(head_dim * self.fraction)

    def turned(self, head_dim: int) -> int:
        """Number of rotated features of a head: d, rounded up to whole pairs."""
        counted = self.counted(head_dim)
        return counted + counted % 2

    def frequencies(self, dim: int, length: Tensor) -> Tensor:
        """θ: (⌈dim/2⌉,) radians per position, float32. length: () int64, tokens of the longest text."""
        if self.scaling is None:
            return rotation(self.base, dim, length.device)
        return self.scaling.frequencies(self.base, dim, length)


class RotaryLayer(PositionLayer):
    """x: (B, H, T, d) → (B, H, T, d). Angles are float32 whatever the input's type."""

    rotates_alike: ClassVar[bool] = True

    def __init__(self, spec: Rotary, head_dim: int) -> None:
        super().__init__()
        self.spec = spec
        self.dim = spec.counted(head_dim)
        self.turned = spec.turned(head_dim)
        self.key = f"{spec!r} {self.dim}"

    def rotate_queries(self, q: Tensor, step: ForwardPass) -> Tensor:
        return self._turn(q, step)

    def rotate_keys(self, k: Tensor, step: ForwardPass) -> Tensor:
        return self._turn(k, step)

    def moved(self, k: Tensor, by: int) -> Tensor:
        """Rotates by `by` further positions. Raises UnsupportedError if frequencies depend on the text's length."""
        if self.spec.by_length:
            reason = "cached keys cannot be shifted: the frequencies depend on the text's length"
            raise UnsupportedError("position.scaling", reason)
        step = ForwardPass(torch.full((1,), by, device=k.device), start=by)
        return self.rotate_keys(k, step) / self.spec.magnitude

    def _turn(self, x: Tensor, step: ForwardPass, sign: int = 0) -> Tensor:
        """sign: +1 for queries, −1 for keys, 0 if the scheme treats both alike."""
        table = step.once((self.key, x.dtype, sign), lambda: self._table(step, x.dtype, sign))
        return _turned(x, *table, self.spec.layout)

    def _table(self, step: ForwardPass, dtype: torch.dtype, sign: int) -> tuple[Tensor, Tensor]:
        """`_table_at` the positions of a pass. Passes with the same cache share a table of `KEPT` positions."""
        positions, start = step.positions, step.start % KEPT
        end = start + step.end - step.start
        if step.kept is None or positions is not step.index or self.spec.by_length or end > KEPT:
            return self._table_at(positions, dtype, sign)
        key, first = (self.key, dtype, sign, positions.device), step.start - start
        if key not in step.kept or step.kept[key][0] != first:
            places = torch.arange(first, first + KEPT, device=positions.device)
            step.kept[key] = first, self._table_at(places, dtype, sign)
        own, other = step.kept[key][1]
        return own[start:end], other[start:end]

    def _table_at(self, positions: Tensor, dtype: torch.dtype, sign: int) -> tuple[Tensor, Tensor]:
        """`_spread` cosines and sines: (T, 2⌈dim/2⌉), or (B, 1, T, 2⌈dim/2⌉) if rows have their own positions."""
        places = (positions if positions.dim() == 1 else positions[:, None])[..., None].float()
        angles = places * self.spec.frequencies(self.dim, positions.max() + 1)
        size = self.amplitude(places, sign)
        return _spread((angles.cos() * size).to(dtype), (angles.sin() * size).to(dtype), self.spec.layout)

    def amplitude(self, places: Tensor, sign: int) -> Tensor | float:
        """Factor on the rotated features at places (…, T, 1): broadcasts to (…, T, ⌈dim/2⌉)."""
        return self.spec.magnitude


def turn_pairs(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """x: (…, d) → x with its first 2·pairs features rotated in pairs. cos, sin: (…, pairs). layout: as in `Rotary`."""
    return _turned(x, *_spread(cos, sin, layout), layout)


def _spread(cos: Tensor, sin: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """(…, pairs) → (…, 2·pairs): factors of a feature and of its partner, (cos, −sin) for a pair's first feature and
    (cos, sin) for its second."""
    if layout == "half":
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    return cos.repeat_interleave(2, dim=-1), torch.stack((-sin, sin), dim=-1).flatten(-2)


def _turned(x: Tensor, own: Tensor, other: Tensor, layout: str) -> Tensor:
    """x: (…, d) → x ⊙ own + partners of x ⊙ other in the first features. own, other: from `_spread`."""
    count = own.shape[-1]
    pairs = x if count == x.shape[-1] else x[..., :count]
    if is_compiling():
        turned = _compiled(pairs, own, other, layout)
    else:  # three operations on whole heads, which take half the time of one for each half of a pair
        half = layout == "half"
        partners = pairs.roll(count // 2, dims=-1) if half else pairs.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        turned = torch.addcmul(pairs * own, partners, other)
    return turned if count == x.shape[-1] else torch.cat((turned, x[..., count:]), dim=-1)


def _compiled(x: Tensor, own: Tensor, other: Tensor, layout: str) -> Tensor:
    """`_turned` for a compiler, which joins any number of operations, but does not vectorise a swap of features."""
    if layout == "half":
        (a, b), cos, sin = x.chunk(2, dim=-1), own.chunk(2, dim=-1)[1], other.chunk(2, dim=-1)[1]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    a, b, cos, sin = x[..., ::2], x[..., 1::2], own[..., 1::2], other[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
