"""Needed FLOPs, which budgets count, are compared with those of decoding; and texts are longer than chunks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import zoo
from zoo.caching.cache import TokenCache
from zoo.conformance.flops import flops, needed_flops
from zoo.conformance.subject import CHUNK, CheckSubject, ConformanceError
from zoo.mixers import Mixer
from zoo.mixers._delta import DeltaCost
from zoo.mixers._scan import ScanChunks, ScanCost
from zoo.settings.axis import variants
from zoo.site import PartCost

SMALL: dict[str, Any] = {"vocab_size": 61, "d_model": 24, "n_layers": 2}


def subject_of(kind: str, **settings: object) -> CheckSubject:
    example = variants("zoo.mixers")[kind].examples[0]  # type: ignore[attr-defined]
    return CheckSubject(zoo.load("small", **SMALL, **{"block.mixer": {"kind": kind, **example, **settings}}))


def needing_whole_rows(cls: type[Mixer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare that a query needs every key of its row of the square, as `Keys(context, context, context)` does."""
    cost = cls.cost

    def wrong(self: Mixer, d_model: int, context: int) -> PartCost:
        right = cost(self, d_model, context)
        return replace(right, flops=right.flops_square)

    monkeypatch.setattr(cls, "cost", wrong)


def test_keys_that_are_declared_and_not_seen_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of("attention")
    needed_flops(subject)
    needing_whole_rows(type(subject.spec.block.mixer), monkeypatch)
    flops(subject)  # what is executed is as it was
    # 17 keys are those of 9 tokens with 9 each, less those of 8 with 8 each.
    projected = 2 * 4 * 24 * 24
    words = (
        f"for token 9 .*: declared {projected + 17 * 4 * 24:,} .*, counted {projected + 9 * 4 * 24:,} while decoding"
    )
    with pytest.raises(ConformanceError, match=words):
        needed_flops(subject)


def test_a_window_counts_although_the_cache_holds_what_is_outside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plug-in's cache holds beside the window is masked, and not counted."""
    subject, empty = subject_of("attention", window=5), TokenCache.empty.__func__  # type: ignore[attr-defined]

    def with_all(cls: Any, batch: int, slots: int, *rest: Any, rolling: bool = False) -> TokenCache:
        made: TokenCache = empty(cls, batch, 19, *rest)
        return made

    monkeypatch.setattr(TokenCache, "empty", classmethod(with_all))
    needed_flops(subject)
    assert subject.model.new_cache(1, 19).layers[0].nbytes == 2 * 24 * 19 * 4


def test_a_mixer_that_decodes_in_another_way_needs_no_more_than_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of("mla")
    needed_flops(subject)
    needing_whole_rows(type(subject.spec.block.mixer), monkeypatch)
    with pytest.raises(ConformanceError, match=r"needed FLOPs of mla for a text.*suffice"):
        needed_flops(subject)


def test_its_own_decode_flops_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of("dsa")
    needed_flops(subject)
    monkeypatch.setattr(type(subject.spec.block.mixer), "decode_flops", lambda self, d_model, context: 10.0)
    with pytest.raises(ConformanceError, match=r"declared 10 \(by `decode_flops`\), counted"):
        needed_flops(subject)


def test_a_recurrence_with_more_steps_than_it_takes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of("gated_deltanet")
    needed_flops(subject)
    cls = type(subject.spec.block.mixer)
    right = cls.scanning  # type: ignore[attr-defined]
    monkeypatch.setattr(cls, "scanning", lambda self: replace(right(self), rank=2))
    with pytest.raises(ConformanceError, match="needed FLOPs of gated_deltanet for token 9"):
        needed_flops(subject)
    assert isinstance(right(subject.spec.block.mixer), DeltaCost)


def test_the_check_names_the_mixers_that_decode_in_another_way() -> None:
    own = sorted(kind for kind, cls in variants("zoo.mixers").items() if "decode_flops" in _defined(cls))
    (named,) = re.findall(r"`decode_flops` of its own \(([^)]*)\)", needed_flops.__doc__ or "")
    assert sorted(re.split(", | and ", named)) == own


def _defined(cls: type) -> set[str]:
    """Methods of a mixer that are not those of every mixer."""
    return {name for base in cls.__mro__ for name in vars(base) if issubclass(base, Mixer) and base is not Mixer}


@pytest.mark.parametrize(
    ("block", "path"),
    [
        ({"mixer": {"kind": "retention", "chunk": 64}}, "block.mixer.chunk"),
        ({"mixer": {"kind": "parallel", "state": {"kind": "mamba2"}}}, "block.mixer.state.chunk"),
    ],
    ids=str,
)
def test_texts_are_longer_than_chunks(block: dict[str, Any], path: str) -> None:
    spec = zoo.load("small", **SMALL, **{f"block.{name}": value for name, value in block.items()})
    assert value_at(spec, path) == 64
    assert value_at(CheckSubject(spec).spec, path) == CHUNK
    shorter = spec.edit({path: 4})
    assert CheckSubject(shorter).spec is shorter


def value_at(spec: zoo.ModelSpec, path: str) -> object:
    found: Any = spec
    for name in path.split("."):
        found = getattr(found, name)
    return found


def test_work_between_chunks_that_is_not_declared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text within one chunk of 64 would have none."""
    subject = subject_of("linear_attention", chunk=64)
    flops(subject)

    def within_chunks(self: ScanCost, length: int) -> float:
        chunks = ScanChunks.of(length, self.chunk)
        return chunks.count * (self._scored(chunks.width) + self._mixed(chunks.width))

    monkeypatch.setattr(ScanCost, "computed", within_chunks)
    with pytest.raises(ConformanceError, match="FLOPs per token executed"):
        flops(subject)


def test_mixers_side_by_side_are_compared_with_decoding_at_their_defaults_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text in chunks takes fewer FLOPs than the recurrence that they declare."""
    spec = zoo.load("small", **SMALL, **{"block.mixer": {"kind": "parallel", "attention.heads": 4}})
    needed_flops(CheckSubject(spec))
    needing_whole_rows(type(spec.block.mixer.attention), monkeypatch)
    with pytest.raises(ConformanceError, match=r"needed FLOPs of parallel for token 9 .* while decoding"):
        needed_flops(CheckSubject(spec))
