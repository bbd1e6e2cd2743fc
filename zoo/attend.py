"""softmax(score(Q, K) + mask) V, by the fastest backend that supports the spec's settings.

Each backend is a file that declares what it does not support: `fused` and `plain`, the reference that all others are
tested against, in `zoo.attending`, the rest in its `backends`. A forced backend that lacks a feature raises ValueError
instead of ignoring the feature.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from zoo.attending import backends, fused, plain
from zoo.attending.plain import entropies, largest_scores, weights_of
from zoo.attending.visible import Backend, Needs, Scoring, Visible
from zoo.kernels.compiling import attention, constant, device_type
from zoo.kernels.precision import as_autocast_has_it, at_default_precision, computed_in
from zoo.settings.registry import member, members

_others = ((name, member(backends.__name__, name)) for name in members(backends.__name__))
BACKENDS: dict[str, Backend] = dict(
    sorted([("fused", fused), ("plain", plain), *_others], key=lambda named: named[1].RANK)
)
"""Backends by name, the fastest first."""
_forced: list[str] = []
"""Backends forced by open `attention_backend` blocks, the innermost last. torch.compile cannot trace a ContextVar."""
_listening: list[tuple[bool, set[str]]] = []
"""Open `executed_backends` blocks: whether each records passes with gradients, and the names recorded so far."""


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """q: (B, H, T, d), k: (B, K, S, d), v: (B, K, S, e) with K dividing H → (B, H, T, e).

    Raises ValueError if a forced backend lacks a feature that the call needs.
    """
    offer_taps(q, k, visible, scoring)
    needs = Needs.of(q, k, v, visible, scoring)
    name = _forced[-1] if _forced else pick(device_type(q), computed_in(q), needs)
    obstacle = BACKENDS[name].obstacle(needs) if _forced else None
    if obstacle is not None:
        raise ValueError(f"the {name} backend {obstacle}: use plain")
    note(f"{name} (FlashAttention-3)" if BACKENDS[name].HOOKED and fused.is_flash_3() else name, needs.gradient)
    stand_in = attention()
    if stand_in is not None and BACKENDS[name].KERNEL:
        q, k, v = as_autocast_has_it(q, k, v)
        return stand_in(q, k, v, visible.share)
    return at_default_precision(lambda q, k, v: BACKENDS[name].attend(q, k, v, visible, scoring), q, k, v)


def offer_taps(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> None:
    """Offer the largest scores, the entropies and the weights to `Scoring.tap`, if there is one."""
    if scoring.tap is not None:
        scoring.tap("mixer.max_logit", lambda: largest_scores(q, k, visible, scoring))
        scoring.tap("mixer.entropy", lambda: entropies(q, k, visible, scoring))
        scoring.tap("mixer.weights", lambda: weights_of(q, k, visible, scoring))


def fastest(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """`attend` for use inside a backend: ignores forced backends and offers no taps."""
    needs = Needs.of(q, k, v, visible, scoring)
    return BACKENDS[pick(q.device.type, computed_in(q), needs)].attend(q, k, v, visible, scoring)


def pick(device: str, dtype: torch.dtype, needs: Needs) -> str:
    """Name of the fastest backend that can serve `needs` on this kind of device."""
    for name, backend in BACKENDS.items():
        if backend.obstacle(needs) is None and backend.pays(device, dtype, needs):
            return name
    raise AssertionError("the reference supports everything")


@constant
def note(name: str, gradient: bool) -> None:
    """Record a backend in the open `executed_backends` blocks. Runs at each pass; in a compiled step it runs only when
    the step is compiled (`ablate.training.compiling`)."""
    for training, names in _listening:
        if training == gradient:
            names.add(name)


@contextmanager
def executed_backends(*, training: bool) -> Iterator[set[str]]:
    """Collect the names of the backends used inside the block, by passes with gradients (`training`) or without."""
    names: set[str] = set()
    _listening.append((training, names))
    try:
        yield names
    finally:
        _listening.pop()


@contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """Force a backend of `BACKENDS` inside the block; raises ValueError for an unknown name. `attend` raises ValueError
    where that backend lacks a feature."""
    if name not in BACKENDS:
        raise ValueError(f"unknown attention backend '{name}': one of {', '.join(BACKENDS)}")
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()
