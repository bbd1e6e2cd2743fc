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
    """`loss`, a method of a model, compiled once for each input shape; failure to compile is an error.

    Compiled code is cached for other runs in the user's cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.
    Torch allows eight compilations per code object, and then silently runs uncompiled. Models of one class share code
    objects, so each gets a copy, and reaching the limit raises `torch._dynamo.exc.FailOnRecompileLimitHit`.
    """
    hold_constants()
    os.environ.setdefault(CACHE, str(user_cache("inductor")))
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    method = cast(MethodType, loss)
    own = MethodType(distinct_code(cast(FunctionType, method.__func__)), method.__self__)
    return cast(Loss, torch.compile(own, dynamic=False, backend=backend))
