"""Copies of a function that torch.compile counts separately.

Torch allows eight compilations per code object, which all models of a class share.
"""

from __future__ import annotations

from types import FunctionType


def distinct_code(function: FunctionType) -> FunctionType:
    """A copy of the function with a code object of its own."""
    own = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__ = function.__kwdefaults__
    return own
