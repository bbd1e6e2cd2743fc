"""Specs without torch, for processes that build no model.

A variant's file holds both its spec and its module, so importing a spec imports torch, which takes more than a second.
After `pretend()`, `import torch` gives placeholders in this process: classes to extend and decorators that change
nothing, like Sphinx's `autodoc_mock_imports`. Code at module or class level may call them. A call inside a function is
an attempt to compute and raises `TorchNeededError`. torch cannot be loaded afterwards, so library functions must not
call `pretend()`; commands may, since they have a process of their own.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABCMeta
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from zoo.settings.registry import plugins

DRIVERS = tuple(
    map(
        Path, ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/kfd", "/dev/dxg")
    )
)
"""Files of which at least one exists if torch can use a GPU on Linux: four of NVIDIA's (two for Tegra), AMD's
(/dev/kfd) and that of WSL (/dev/dxg)."""
ANSWERS: Mapping[str, Callable[..., Any]] = {
    "torch.cuda.is_available": lambda: False,
    "torch.cuda.device_count": lambda: 0,
    "torch.get_num_threads": lambda: 1,
    "torch.set_num_threads": lambda threads: None,
    "torch.get_float32_matmul_precision": lambda: "highest",
    "torch.set_float32_matmul_precision": lambda precision: None,
    "torch.set_flush_denormal": lambda flushes: True,
}
"""Stand-ins for torch functions, with results that hold if there is no GPU and nothing is computed."""


class TorchNeededError(RuntimeError):
    """Raised when code computes with torch in a process where `pretend()` replaced it."""


def pretend() -> None:
    """Make `import torch` give placeholders, unless torch is loaded or there are plug-ins, whose files may compute on
    import."""
    if "torch" not in sys.modules and not plugins():
        sys.meta_path.insert(0, _Finder())


def may_have_gpu() -> bool:
    """Whether a GPU may be present, so that only torch can tell. Always true on Windows, which has no device files."""
    return sys.platform == "win32" or any(map(Path.exists, DRIVERS))


class _Placeholder(ABCMeta):
    """Metaclass of placeholders for names in torch. A placeholder is a class whose attributes are placeholders too."""

    _path: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder(f"{cls._path}.{name}")

    def __call__(cls, *arguments: Any, **settings: Any) -> Any:
        """Act as a decorator: return a callable argument unchanged, and without positional arguments the placeholder.
        Raises TorchNeededError inside a function, or for other arguments."""
        if _computes(inspect.currentframe()):
            raise TorchNeededError(f"{cls._path} needs torch, which this command does not load")
        if len(arguments) == 1 and callable(arguments[0]):
            return arguments[0]
        if arguments:
            raise TorchNeededError(f"{cls._path} needs torch, which this command does not load")
        return cls

    def __getitem__(cls, item: Any) -> Any:
        return cls


def _computes(here: FrameType | None) -> bool:
    """Whether the caller of frame `here` is a function, not the body of a module or class."""
    caller = here.f_back if here else None
    return caller is None or bool(caller.f_code.co_flags & inspect.CO_OPTIMIZED)


def _placeholder(path: str) -> Any:
    return ANSWERS.get(path) or _Placeholder(path.rpartition(".")[2], (), {"_path": path})


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return metadata.version(self.__name__)
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, found := _placeholder(f"{self.__name__}.{name}"))
        return found


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == "torch" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass
