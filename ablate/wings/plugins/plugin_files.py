"""Plug-in files of a user: `--plugin FILE` and `ablate.plug_in`. The folder that a file belongs to follows from the
classes and names that it defines. They are parsed without running the file, since its module name must be known before
its first import (see `zoo.settings.registry`)."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from store.errors import ArgumentError
from store.files import read_regular

FOLDERS = (
    *("zoo.norms", "zoo.residuals", "zoo.positions", "zoo.positions.scalings", "zoo.sparsities", "zoo.mixers"),
    *("zoo.ffns", "zoo.caches", "zoo.features", "zoo.block_features", "evals.evaluations"),
    *("ablate.data.sources", "ablate.data.tokenizers"),
    *("ablate.training.objectives", "ablate.training.optimizers", "ablate.training.probes"),
    *("ablate.tracking", "ablate.running.engines"),
)
"""The packages that plug-ins can belong to; nested packages follow their parent."""
BUILDING_BLOCKS = "zoo.building_blocks"
"""The module that collects base classes for plug-ins."""
AFTER_FILE = ("zoo.features", "zoo.block_features", "evals.evaluations")
"""Folders whose plug-ins are named after their file."""
NO_MIXERS = {**dict.fromkeys(("Ffn", "FfnLayer", "Wide"), "zoo.ffns"), "Norm": "zoo.norms"}
"""Folders of the classes in `BUILDING_BLOCKS` that do not belong to mixers."""
NAMED = ("kind", "source")
"""Fields whose `Literal` is a variant's name. Other plug-ins are named after their file."""
MARKS = {"begin": "ablate.tracking", "build": "ablate.running.engines", "PROBE": "ablate.training.probes"}
"""Folders without a base class, by the name that each of their plug-ins defines."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plugin",
        action="append",
        metavar="FILE",
        help="a Python file with your own variant, data source, …: see docs/plugins.md (may be repeated)",
    )


def prepare(words: Sequence[str]) -> None:
    """Load the plug-ins of a command line, on which its options may depend; all options are checked later."""
    paths = [word.removeprefix("--plugin=") for word in words if word.startswith("--plugin=")]
    plug_in(*paths, *(after for word, after in pairwise(words) if word == "--plugin"))


def plug_in(*paths: str | Path) -> list[str]:
    """Add variants, optimizers, data sources, evaluations, trackers and so on from files, for studies to name.

    Call this before anything else of `ablate` and `zoo`: their choices are fixed when they are loaded. Child processes
    load the files, too.

    Args:
        paths: Python files, each written as if it were in its folder of the project (docs/plugins.md).

    Returns:
        The names of the plug-ins that were added, such as `norms.maxnorm`.

    Raises:
        ArgumentError: a file cannot be read, its folder cannot be told from its content, or it comes too late.

    Example:
        >>> ablate.plug_in("maxnorm.py")
        ['norms.maxnorm']
    """
    places = [place_of(Path(path)) for path in paths]
    return [_added(*place, Path(path)) for place, path in zip(places, paths, strict=True)]


def _added(package: str, name: str, path: Path) -> str:
    from zoo.errors import PluginError  # noqa: PLC0415 (commands without plug-ins start quickly)
    from zoo.settings.registry import add_file  # noqa: PLC0415 (as above)

    try:
        add_file(package, name, path.resolve())
    except PluginError as error:
        raise ArgumentError("plugin", str(error), str(path)) from None
    return f"{package.rpartition('.')[2]}.{name}"


def check_groups() -> None:
    """Raise PluginError for an installed plug-in whose entry-point group matches no folder: nothing would load it."""
    from zoo.errors import PluginError, did_you_mean  # noqa: PLC0415 (as above)
    from zoo.settings.registry import GROUP, plugins  # noqa: PLC0415 (as above)

    folders = sorted(package.rpartition(".")[2] for package in FOLDERS)
    for plugin in plugins():
        if plugin.folder not in folders:
            near = did_you_mean(plugin.folder, folders) or f": one of {', '.join(folders)}"
            raise PluginError(f"plug-in {plugin}: there is no group {GROUP}{plugin.folder}{near}")


def place_of(path: Path) -> tuple[str, str]:
    """The package that a file belongs to, and the plug-in's name there. Raises ArgumentError."""
    try:
        tree = ast.parse(read_regular(path).decode())
    except OSError as error:
        raise ArgumentError("plugin", error.strerror or "not a regular file", str(path)) from None
    except (RecursionError, MemoryError) as error:
        raise ArgumentError("plugin", f"cannot be parsed ({type(error).__name__})", str(path)) from None
    except (SyntaxError, ValueError) as error:  # ValueError: bytes that are not UTF-8
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise ArgumentError("plugin", f"not Python: {error.args[0]}{where}", str(path)) from None
    places = sorted(set(_places(tree, path.stem)))
    if len(places) == 1:
        return places[0]
    found = ", ".join(f"{package}: {name}" for package, name in places) or f"none{_nameless(tree, path.stem)}"
    kinds = "variant, feature, optimizer, objective, data source, evaluation, tracker or engine"
    raise ArgumentError("plugin", f"expected one {kinds}, found {found} (docs/plugins.md)", str(path))


def _places(tree: ast.Module, stem: str) -> Iterator[tuple[str, str]]:
    """(package, name) of every plug-in that a file defines."""
    for node, package in _derived(tree):
        if name := _name_of(node, package, stem):
            yield package, name
    origins = {package for _, package in _imported(tree)}
    for mark in map(_defined, tree.body):
        if mark in MARKS and MARKS[mark] in origins:
            yield MARKS[mark], stem


def _derived(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, str]]:
    """Top-level classes that derive from a class of a folder, each with that folder."""
    origins = dict(_imported(tree))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [origins[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in origins]
            if bases:
                origins[node.name] = bases[0]
                yield node, bases[0]


def _nameless(tree: ast.Module, stem: str) -> str:
    """Note on the first spec class, for a file whose specs have no name; empty if there is none."""
    layer = ("Layer", "Module")  # bases of the layers that specs build; layers need no name
    specs = [
        (node, package)
        for node, package in _derived(tree)
        if not any(isinstance(base, ast.Name) and base.id.endswith(layer) for base in node.bases)
    ]
    if not specs:
        return ""
    node, package = specs[0]
    field = "source" if package == "ablate.data.sources" else "kind"
    return f": {node.name} needs a name, such as {field}: Literal['{stem}'] = '{stem}'"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that a file imports from a folder or from a module in one, each with that folder."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if folder := _folder_of(node.module, alias.name):
                    yield alias.asname or alias.name, folder


def _folder_of(module: str, name: str) -> str | None:
    """The folder of a name that is imported from `module`; None if it is from no folder."""
    if module == BUILDING_BLOCKS:
        return NO_MIXERS.get(name, "zoo.mixers")
    return next((each for each in reversed(FOLDERS) if f"{module}.".startswith(f"{each}.")), None)


def _name_of(node: ast.ClassDef, package: str, stem: str) -> str | None:
    """A class's name in studies; None for a base class."""
    if package in AFTER_FILE:
        return stem
    for field in node.body:
        match field:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=ast.Subscript(slice=ast.Constant(value=str(kind)))
            ) if name in NAMED:
                return kind
    return None


def _defined(node: ast.stmt) -> str:
    """The name that a statement defines; empty for other statements."""
    match node:
        case ast.FunctionDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""
