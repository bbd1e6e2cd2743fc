"""Which transformers is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _major() -> int:
    try:
        return int(version("transformers").partition(".")[0])
    except PackageNotFoundError:
        return 0


MAJOR = _major()
