"""A model and its loss as one compiled program (torch.compile)."""

from __future__ import annotations

import os
from types import FunctionType, MethodType
from typing import cast

import torch

from ablate.machine.environment import user_cache
from ablate.training.batch import Loss
from zoo.kernels.compile_constants import hold_constants
from zoo.kernels.distinct_code import distinct_code

CACHE = "TORCHINDUCTOR_CACHE_DIR"


def compiled(loss: Loss, backend: str = "inductor") -> Loss:
    """`loss`, a method of a model, compiled once for each shape that it is given; what cannot be is an error.

    What was compiled lasts in the user's cache folder, where other runs find it, unless TORCHINDUCTOR_CACHE_DIR names
    another. Torch counts compilations by the code of a function, eight at most, and beyond goes on uncompiled without
    a word: models of one class share theirs, so each is given a copy, and reaching the limit raises
    `torch._dynamo.exc.FailOnRecompileLimitHit`.
    """
    hold_constants()
    os.environ.setdefault(CACHE, str(user_cache("inductor")))
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    method = cast(MethodType, loss)
    own = MethodType(distinct_code(cast(FunctionType, method.__func__)), method.__self__)
    return cast(Loss, torch.compile(own, dynamic=False, backend=backend))
