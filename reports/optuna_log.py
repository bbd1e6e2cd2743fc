"""Optuna without its log: it tells what it does and thinks of a space, and pages and progress say what matters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silenced() -> Iterator[None]:
    """Nothing below an error is logged inside."""
    logger = logging.getLogger("optuna")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
