"""Variants of a folder (a package such as `zoo.norms`): its own files and plug-ins.

A plug-in is a variant file outside the folder. An installed distribution declares its modules as entry points, in a
group named after the folder; `ablate --plugin FILE` and `ablate.plug_in` add single files, inherited by subprocesses.

    [project.entry-points."ablate.norms"]
    maxnorm = "my_package.maxnorm"          # acts as zoo/norms/maxnorm.py

All lists of a folder's variants come from this module, so plug-ins work wherever built-in files do.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from pydantic import BaseModel

from zoo.errors import PluginError

Base = TypeVar("Base")

VARIABLE = "ABLATE_PLUGINS"
"""Environment variable with single-file plug-ins: `zoo.norms/maxnorm=/path/of/maxnorm.py`, separated as in PATH."""
GROUP = "ablate."
"""Prefix of entry-point groups: `ablate.norms` for `zoo.norms`."""
_listed: set[str] = set()
"""Packages whose variants have been listed. Spec types may be built from that list, so later plug-ins are refused."""


@dataclass(frozen=True)
class Plugin:
    """A variant file outside its folder: at a path, or a module of an installed distribution.

    folder: last part of the package's name. A file at a path is imported under the module name it would have inside the
    package.
    """

    folder: str
    name: str
    module: str
    path: Path | None = None
    distribution: str = ""

    def __str__(self) -> str:
        return str(self.path) if self.path else f"{self.module} of {self.distribution}"

    @property
    def label(self) -> str:
        """Folder and name: `norms.maxnorm`."""
        return f"{self.folder}.{self.name}"

    def load(self) -> ModuleType:
        """Import the plug-in. Raises PluginError if that fails."""
        try:
            return self._executed(self.path) if self.path else importlib.import_module(self.module)
        except (Exception, SystemExit) as error:  # third-party code may raise anything
            reason = " ".join(str(error).split())
            raise PluginError(f"plug-in {self}: {type(error).__name__}: {reason}{place_in_plugin(error)}") from error

    def _executed(self, path: Path) -> ModuleType:
        if (loaded := sys.modules.get(self.module)) is not None:
            return loaded
        digest_of(path)
        spec = importlib.util.spec_from_file_location(self.module, path)
        if spec is None or spec.loader is None:
            raise ImportError("not a Python file")
        module = sys.modules[self.module] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[self.module]
            raise
        return module

    def version(self) -> str:
        """Version identifier: distribution with its version, if installed, then the digest of the file."""
        return f"{self.distribution} {digest_of(Path(str(self.load().__file__)))}".lstrip()


@cache
def digest_of(path: Path) -> str:
    """Digest of a file, cached from when it was loaded: this process keeps running that code if the file changes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def members(package: str, *more: str) -> list[str]:
    """Names of a folder's variants, in alphabetical order. Raises PluginError if a plug-in's name is taken.

    more: packages with further files of the folder.
    """
    _listed.add(package)
    own, added = frozenset[str]().union(*map(_files_of, (package, *more))), plugins_of(package)
    for name in own & added.keys():
        raise taken(added[name])
    return sorted(own | added.keys())


@cache
def _files_of(package: str) -> frozenset[str]:
    """Names of a folder's built-in files. Cached, since explaining a refused spec asks for them repeatedly."""
    folder = getattr(importlib.import_module(package), "__path__", ())
    return frozenset(m.name for m in pkgutil.iter_modules(folder) if not (m.ispkg or m.name.startswith("_")))


def member(package: str, name: str, *more: str) -> ModuleType:
    """Module of one of a folder's `members`. Raises PluginError if a plug-in cannot be imported."""
    if plugin := plugins_of(package).get(name):
        return plugin.load()
    home = next((each for each in more if name in _files_of(each)), package)
    return importlib.import_module(f"{home}.{name}")


def only_class(module: ModuleType, base: type[Base]) -> type[Base]:
    """The only subclass of `base` that a module defines. Raises PluginError unless there is exactly one."""
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise PluginError(f"{called(module)}: expected one {base.__name__}, found {len(own)}")
    return own[0]


def taken(plugin: Plugin, by: str = "") -> PluginError:
    return PluginError(
        f"plug-in {plugin}: the name {plugin.name} is already used in {plugin.folder}{by}: choose another"
    )


def called(module: ModuleType) -> str:
    """Name of a module in messages: its file, preceded by `plug-in` if it is one."""
    ours = any(plugin.module == module.__name__ for plugin in plugins())
    return f"plug-in {module.__file__}" if ours else str(module.__file__)


def place_in_plugin(error: BaseException) -> str:
    """Last plug-in frame of an error's traceback, as ` (fox.py:93, in rows)`; empty if there is none."""
    modules = (sys.modules.get(plugin.module) for plugin in plugins())
    files = {str(plugin.path) for plugin in plugins()} | {str(module.__file__) for module in modules if module}
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    inside = [(code, line) for code, line in frames if code.co_filename in files]
    if not inside:
        return ""
    code, line = inside[-1]
    where = "" if code.co_name == "<module>" else f", in {code.co_name}"
    return f" ({Path(code.co_filename).name}:{line}{where})"


def plugins_of(package: str) -> Mapping[str, Plugin]:
    """Plug-ins of a folder by name. Raises PluginError if two have the same name."""
    folder, found = package.rpartition(".")[2], dict[str, Plugin]()
    for plugin in plugins():
        if plugin.folder != folder:
            continue
        if (first := found.setdefault(plugin.name, plugin)) != plugin:
            raise taken(plugin, f" by {first}")
    return found


def plugins() -> tuple[Plugin, ...]:
    """Plug-ins of all folders."""
    return (*_installed(tuple(sys.path)), *_files(os.environ.get(VARIABLE, "")))


def plugin_files() -> tuple[Path, ...]:
    """Paths of the single-file plug-ins, in the order in which they were given."""
    return tuple(plugin.path for plugin in _files(os.environ.get(VARIABLE, "")) if plugin.path is not None)


@cache
def _installed(path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Plug-ins of installed distributions. Of equal entry points the first on the path wins, as for modules."""
    points = ((point, found) for found in metadata.distributions(path=list(path)) for point in found.entry_points)
    ours = ((point, found) for point, found in points if point.group.startswith(GROUP))
    plugins: dict[str, Plugin] = {}
    for point, found in ours:
        made_by = f"{found.name} {found.version}"
        plugin = Plugin(point.group.removeprefix(GROUP), point.name, point.value, distribution=made_by)
        plugins.setdefault(plugin.label, plugin)
    return tuple(plugins.values())


@cache
def _files(variable: str) -> tuple[Plugin, ...]:
    found = []
    for entry in filter(None, variable.split(os.pathsep)):
        if (parts := re.fullmatch(r"([\w.]+)/([^/=]+)=(.+)", entry)) is None:
            raise PluginError(f"{VARIABLE}: expected PACKAGE/NAME=FILE, not {entry!r}")
        package, name, path = parts.groups()
        found.append(Plugin(package.rpartition(".")[2], name, f"{package}.{name}", Path(path)))
    return tuple(found)


def add_file(package: str, name: str, path: Path) -> None:
    """Add a plug-in file to a folder, in this process and its subprocesses. Raises PluginError if the path contains the
    separator, or if the package's variants have been listed already."""
    entry = f"{package}/{name}={path}"
    known = list(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    if entry in known:
        return
    if os.pathsep in str(path):
        raise PluginError(f"its path must not contain '{os.pathsep}'")
    if package in _listed:
        raise PluginError(f"{package} is already loaded: add plug-ins first")
    os.environ[VARIABLE] = os.pathsep.join([*known, entry])


def versions_of(*values: object) -> dict[str, str] | None:
    """Versions of the plug-ins that the specs inside `values` use, by label; None if they use none."""
    known = plugins()
    if not known:
        return None
    by_module = {plugin.module: plugin for plugin in known}
    used = {by_module[name] for name in _modules_of(values) if name in by_module}
    return {plugin.label: plugin.version() for plugin in sorted(used, key=lambda each: each.label)} or None


def changed(versions: Mapping[str, str]) -> Iterator[str]:
    """Labels of plug-ins that are missing or have another version."""
    here = {plugin.label: plugin for plugin in plugins()}
    yield from (label for label, version in versions.items() if label not in here or here[label].version() != version)


def _modules_of(value: object) -> Iterator[str]:
    """Module names of the classes of all specs inside a value."""
    if isinstance(value, BaseModel):
        yield type(value).__module__
        yield from _modules_of(vars(value).values())
    elif isinstance(value, Mapping):
        yield from _modules_of(value.values())
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for each in value:
            yield from _modules_of(each)
