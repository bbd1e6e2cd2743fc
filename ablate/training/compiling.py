"""A model and its loss as one compiled program (torch.compile)."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ablate.machine.environment import user_cache
from ablate.training.batch import Loss
from store import AblateError
from zoo.kernels.compiling import distinct_code, hold_constants

if TYPE_CHECKING:  # it loads torch's compiler
    from torch._dynamo.exc import Unsupported

LOG = logging.getLogger(__name__)
CACHE = "TORCHINDUCTOR_CACHE_DIR"


class GraphBreakError(AblateError):
    """A loss is not one graph: torch's compiler leaves part of it to Python."""


@dataclass
class ModelCode:
    """The code from which a model is compiled: a copy of its own. breaks: where its programs of several graphs are
    first interrupted."""

    breaks: list[str] = field(default_factory=list)

    def of(self, function: FunctionType) -> FunctionType:
        """The copy of a function to compile."""
        return distinct_code(function)

    def told(self, program: Loss) -> Loss:
        """The program, with what else it has to tell."""
        return program


SHARED: list[ModelCode] = []
"""Code that all models are compiled from, of open blocks; the innermost block's is the last."""
_STRICT: list[None] = []
"""An entry for each open `one_graph` block."""


def compiled(loss: Loss, backend: str = "inductor") -> Loss:
    """`loss`, a method of a model, compiled once for each input shape; failure to compile is an error.

    Compiled code is cached for other runs in the user's cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.
    Torch allows eight compilations per code object, and then silently runs uncompiled. Models of one class share code
    objects, so each gets a copy, unless code is `SHARED`, and reaching the limit raises
    `torch._dynamo.exc.FailOnRecompileLimitHit`.

    Where the compiler interrupts the graph, the log has a warning with the place; inside `one_graph` the program raises
    GraphBreakError instead.
    """
    hold_constants()
    os.environ.setdefault(CACHE, str(user_cache("inductor")))
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    method, code = cast(MethodType, loss), SHARED[-1] if SHARED else ModelCode()
    own = MethodType(code.of(cast(FunctionType, method.__func__)), method.__self__)
    program = cast(Loss, torch.compile(own, dynamic=False, backend=backend))
    return code.told(_watched(program, code.breaks, one_graph=bool(_STRICT)))


def _watched(program: Loss, breaks: list[str], *, one_graph: bool) -> Loss:
    """The program, compiled as one graph if possible. breaks: where the graph is interrupted, if this is known."""
    from torch._dynamo import error_on_graph_break  # noqa: PLC0415 (loads torch's compiler, which takes seconds)
    from torch._dynamo.exc import Unsupported  # noqa: PLC0415 (as above)

    def warn() -> None:
        LOG.warning("not compiled as one graph, so that Python runs between its parts: %s", breaks[0])

    def loss(*tensors: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
        if not breaks:
            try:
                with error_on_graph_break(True):
                    return program(*tensors, **given)
            except Unsupported as error:  # while it was traced: nothing has run
                breaks.append(place_of(error))
                if not one_graph:
                    warn()
        if one_graph:
            raise GraphBreakError(f"not compiled as one graph: {breaks[0]}")
        return program(*tensors, **given)

    if breaks and not one_graph:
        warn()
    return loss


def place_of(error: Unsupported) -> str:
    """Place and reason of a graph break, from torch's message: `experts.py:93, load.tolist() (data dependent…)`."""
    reason, *lines = str(error).strip().splitlines()
    places = [(number, found) for number, line in enumerate(lines) if (found := FRAME.match(line))]
    if not places:
        return reason
    number, frame = places[-1]
    code = f", `{lines[number + 1].strip()}`" if number + 1 < len(lines) else ""
    return f"{frame['file']}:{frame['line']}{code} ({reason})"


FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in ')
"""A line of torch's message that names a place in the code, innermost last."""


@contextmanager
def one_graph() -> Iterator[None]:
    """Inside the block, losses are compiled as one graph each, or raise GraphBreakError when they are called. For the
    comparison of speeds, which Python between the parts of a graph would falsify.
    """
    _STRICT.append(None)
    try:
        yield
    finally:
        _STRICT.pop()
