"""Variants in a folder: its own files, and the plug-ins that belong to it.

A plug-in is such a file that lies elsewhere. An installed package names its modules as entry points, in a group called
after the folder; `ablate --plugin FILE` and `ablate.plug_in` add single files, which processes that we start inherit.

    [project.entry-points."ablate.norms"]
    maxnorm = "my_package.maxnorm"          # the module that would be zoo/norms/maxnorm.py

Whoever asks what a folder holds asks here, so a plug-in is wherever a file of ours is.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
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
"""Environment variable with plug-ins: `zoo.norms/maxnorm=/path/of/maxnorm.py`, one after the other as in PATH."""
GROUP = "ablate."
"""Groups of entry points begin with it: `ablate.norms` for `zoo.norms`."""
_listed: set[str] = set()
"""Packages whose names were asked for: the types of specs are made of them then."""


@dataclass(frozen=True)
class Plugin:
    """A file of a folder that lies elsewhere: at a path, or as a module of an installed distribution.

    `folder` is the last part of the package's name. A file is imported as the module of the package that it would be.
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
        """`norms.maxnorm`."""
        return f"{self.folder}.{self.name}"

    def load(self) -> ModuleType:
        """Raises PluginError."""
        try:
            return self._executed(self.path) if self.path else importlib.import_module(self.module)
        except (Exception, SystemExit) as error:  # it is anybody's code
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
        """Version identifier: the digest of its file, after its distribution and version."""
        return f"{self.distribution} {digest_of(Path(str(self.load().__file__)))}".lstrip()


@cache
def digest_of(path: Path) -> str:
    """Digest of a file as it was when it was loaded: that code runs here, even if it is edited meanwhile."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def members(package: str) -> list[str]:
    """Names of a folder's variants, in alphabetical order. Raises PluginError for a plug-in whose name is taken."""
    _listed.add(package)
    own, added = _files_of(package), plugins_of(package)
    for name in own & added.keys():
        raise _taken(added[name])
    return sorted(own | added.keys())


@cache
def _files_of(package: str) -> frozenset[str]:
    """Names of the files that a folder came with: a specification that is refused asks for them again and again."""
    folder = importlib.import_module(package).__path__
    return frozenset(m.name for m in pkgutil.iter_modules(folder) if not (m.ispkg or m.name.startswith("_")))


def member(package: str, name: str) -> ModuleType:
    """One of the `members` of a folder. Raises PluginError."""
    plugin = plugins_of(package).get(name)
    return plugin.load() if plugin else importlib.import_module(f"{package}.{name}")


def only_class(module: ModuleType, base: type[Base]) -> type[Base]:
    """The class that a module defines of this kind. Raises PluginError unless there is exactly one."""
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise PluginError(f"{called(module)}: expected one {base.__name__}, found {len(own)}")
    return own[0]


def _taken(plugin: Plugin, by: str = "") -> PluginError:
    return PluginError(f"plug-in {plugin}: the name {plugin.name} is taken among {plugin.folder}{by}: choose another")


def called(module: ModuleType) -> str:
    """A module in messages: its file, and that it is a plug-in's."""
    ours = any(plugin.module == module.__name__ for plugin in plugins())
    return f"plug-in {module.__file__}" if ours else str(module.__file__)


def place_in_plugin(error: BaseException) -> str:
    """Where an error was last in a plug-in's file, ` (fox.py:93, in rows)`; empty if it was in none."""
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
    """The plug-ins of a folder by name. Raises PluginError where two have one name."""
    folder, found = package.rpartition(".")[2], dict[str, Plugin]()
    for plugin in plugins():
        if plugin.folder != folder:
            continue
        if (first := found.setdefault(plugin.name, plugin)) != plugin:
            raise _taken(plugin, f" by {first}")
    return found


def plugins() -> tuple[Plugin, ...]:
    """All that there are, of every folder."""
    return (*_installed(tuple(sys.path)), *_files(os.environ.get(VARIABLE, "")))


def plugin_files() -> tuple[Path, ...]:
    """Paths of those that are single files, in the order in which they were given."""
    return tuple(plugin.path for plugin in _files(os.environ.get(VARIABLE, "")) if plugin.path is not None)


@cache
def _installed(path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Plug-ins of installed distributions. For one entry point the first on the path counts, as for modules."""
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
        place, _, path = entry.partition("=")
        package, _, name = place.partition("/")
        found.append(Plugin(package.rpartition(".")[2], name, f"{package}.{name}", Path(path)))
    return tuple(found)


def add_file(package: str, name: str, path: Path) -> None:
    """Make a file one of a folder's, here and in the processes that we start. Raises PluginError."""
    entry = f"{package}/{name}={path}"
    known = list(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    if entry in known:
        return
    if os.pathsep in str(path):
        raise PluginError(f"its path may not contain '{os.pathsep}'")
    if package in _listed:
        raise PluginError(f"{package} is loaded already: plug-ins come first")
    os.environ[VARIABLE] = os.pathsep.join([*known, entry])


def versions_of(*values: object) -> dict[str, str] | None:
    """Versions of the plug-ins that specs are made of; None where there is none."""
    known = plugins()
    if not known:
        return None
    by_module = {plugin.module: plugin for plugin in known}
    used = {by_module[name] for name in _modules_of(values) if name in by_module}
    return {plugin.label: plugin.version() for plugin in sorted(used, key=lambda each: each.label)} or None


def changed(versions: Mapping[str, str]) -> Iterator[str]:
    """Labels of plug-ins that are not, or no longer, of these versions."""
    here = {plugin.label: plugin for plugin in plugins()}
    yield from (label for label, version in versions.items() if label not in here or here[label].version() != version)


def _modules_of(value: object) -> Iterator[str]:
    """Modules of the classes of all specs inside a value."""
    if isinstance(value, BaseModel):
        yield type(value).__module__
        yield from _modules_of(vars(value).values())
    elif isinstance(value, Mapping):
        yield from _modules_of(value.values())
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for each in value:
            yield from _modules_of(each)
