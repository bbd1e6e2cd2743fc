"""A model and its loss as one compiled program (torch.compile)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, cast

import torch
from torch import Tensor

from ablate.machine.environment import user_cache
from ablate.training.batch import Loss
from zoo.attend import executed_backends, note
from zoo.kernels.compile_constants import hold_constants
from zoo.kernels.distinct_code import distinct_code

CACHE = "TORCHINDUCTOR_CACHE_DIR"


@dataclass
class SharedCode:
    """Code that the models compiled in a `sharing` block share. copies: the copy of each compiled function. backends:
    attention backends in the programs, which are recorded only while a program is compiled."""

    copies: dict[FunctionType, FunctionType] = field(default_factory=dict)
    backends: set[str] = field(default_factory=set)

    def of(self, function: FunctionType) -> FunctionType:
        """The copy of the function that models share."""
        return self.copies.setdefault(function, distinct_code(function))


_SHARED: list[SharedCode] = []
"""Code of the open `sharing` blocks; the innermost block's is the last."""


def compiled(loss: Loss, backend: str = "inductor") -> Loss:
    """`loss`, a method of a model, compiled once for each input shape; failure to compile is an error.

    Compiled code is cached for other runs in the user's cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.
    Torch allows eight compilations per code object, and then silently runs uncompiled. Models of one class share code
    objects, so each gets a copy, and reaching the limit raises `torch._dynamo.exc.FailOnRecompileLimitHit`. Only inside
    `sharing` do models use one copy.
    """
    hold_constants()
    os.environ.setdefault(CACHE, str(user_cache("inductor")))
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    method = cast(MethodType, loss)
    shared, function = _SHARED[-1] if _SHARED else None, cast(FunctionType, method.__func__)
    own = MethodType(shared.of(function) if shared else distinct_code(function), method.__self__)
    program = cast(Loss, torch.compile(own, dynamic=False, backend=backend))
    return program if shared is None else _noting(program, shared)


@contextmanager
def sharing() -> Iterator[SharedCode]:
    """Inside the block, let models that are compiled share a program where torch finds that it fits: of two models of
    one spec, the second uses the program of the first, as long as the first exists. Guards of torch.compile compare
    shapes, settings and numerics, and compile again if any differs.

    The backward pass is compiled with the forward pass, because a process that forks others must not run one: torch's
    threads for it would be missing in the fork.
    """
    shared = SharedCode()
    _SHARED.append(shared)
    try:
        at_once = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
        with at_once, executed_backends(training=True) as shared.backends:
            yield shared
    finally:
        _SHARED.pop()


def _noting(program: Loss, shared: SharedCode) -> Loss:
    """The program, which records the attention backends in it at each pass, as an uncompiled model does."""

    def loss(*tensors: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
        found = program(*tensors, **given)
        for name in tuple(shared.backends):
            note(name, gradient=True)
        return found

    return loss
