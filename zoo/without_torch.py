"""Specs without torch, for processes that show them and build nothing.

A variant's file has its spec and its module, so whoever imports a spec imports torch, which takes two seconds. After
`pretend()`, `import torch` gives placeholders in this process: classes to extend and decorators that change nothing, as
Sphinx's `autodoc_mock_imports` does for documentation. Computing with them raises an error, and torch cannot be loaded
afterwards: a function that others may call with models in hand must not pretend. `ablate zoo` and `ablate schema` do.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from zoo.registry import plugins


def pretend() -> None:
    """Have `import torch` give placeholders, unless it is loaded, or there are plug-ins: their files may compute as
    they are imported."""
    if "torch" not in sys.modules and not plugins():
        sys.meta_path.insert(0, _Finder())


class _Placeholder(ABCMeta):
    """The type of a name of torch: a class, whose attributes are placeholders, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder(name)

    def __call__(cls, *arguments: Any, **settings: Any) -> Any:
        """As a decorator it gives what it decorates, and with settings a decorator."""
        if len(arguments) == 1 and callable(arguments[0]):
            return arguments[0]
        if arguments:
            raise RuntimeError(f"torch.{cls.__name__} is called in a process that pretends to have torch")
        return cls

    def __getitem__(cls, item: Any) -> Any:
        return cls


def _placeholder(name: str) -> _Placeholder:
    return _Placeholder(name, (), {})


class _Module(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, found := _placeholder(name))
        return found


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == "torch" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass
