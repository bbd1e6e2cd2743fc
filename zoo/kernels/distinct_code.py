"""Functions that torch.compile tells apart.

Torch counts compilations by the code of a function, eight at most, and models of one class share theirs.
"""

from __future__ import annotations

from types import FunctionType


def distinct_code(function: FunctionType) -> FunctionType:
    """The function, with a code object that no other has."""
    own = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__ = function.__kwdefaults__
    return own
