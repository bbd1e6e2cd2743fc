"""The transformers package and its installed version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from types import ModuleType


def _major() -> int:
    try:
        return int(version("transformers").partition(".")[0])
    except PackageNotFoundError:
        return 0


MAJOR = _major()


def transformers_module() -> ModuleType:
    try:
        import transformers  # noqa: PLC0415 (an optional extra, and slow to import)
    except ImportError:
        raise ImportError("converting models needs transformers: pip install transformers peft") from None
    found: ModuleType = transformers
    return found
