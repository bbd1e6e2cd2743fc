"""Lines and files of the core, of its leaves and of the wings, as Markdown.

    python tools/size.py

A line counts whatever it holds, as `wc -l` counts it. Tests are counted apart. A leaf is one variant, source, section
or family in a file of its own, which nothing else names: a folder of leaves grows without making the rest harder to
hold in mind. What leaves share is a leaf, too, unless the core imports it, or a leaf that every study begins with.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("zoo", "store", "evals", "reports", "ablate")
WINGS = ("ablate/wings/", "evals/harness/", "zoo/conformance/", "zoo/conversion/", "zoo/hf/")
"""Folders whose subfolders, or who themselves, can be taken off."""
LEAVES = (
    *(f"zoo/{axis}/" for axis in ("mixers", "ffns", "norms", "residuals", "positions", "sparsities")),
    *(f"zoo/{axis}/" for axis in ("caches", "attending/backends", "features", "block_features", "decode", "presets")),
    *(f"ablate/{kind}/" for kind in ("data/sources", "data/tokenizers", "training/optimizers")),
    *(f"ablate/training/{kind}/" for kind in ("objectives", "probes")),
    *("evals/evaluations/", "reports/page/evaluations/", "reports/page/sections/"),
)


BEGUN_WITH = (
    "zoo/mixers/attention.py",
    "zoo/ffns/gated.py",
    "zoo/positions/rope.py",
    "reports/page/sections/losses.py",
)
"""Leaves of the base model, and of every page."""
FACE = "zoo/building_blocks.py"
"""Names of the leaves' shared parts, for plug-ins; nothing imports it."""


def kind_of(path: str) -> str:
    """`wing`, `leaf` or `core`."""
    if path.startswith(WINGS):
        return "wing"
    return "leaf" if path == FACE or (path.startswith(LEAVES) and path not in shared_with_core()) else "core"


@cache
def shared_with_core() -> frozenset[str]:
    """Files in folders of leaves that are no leaves: the registries, and what the core imports."""
    paths = {path: _imported(path) for path, _ in files()}
    found = {path for path in paths if path.startswith(LEAVES) and path.endswith("/__init__.py")}
    known = {*found, *BEGUN_WITH, *(path for path in paths if not path.startswith((*WINGS, *LEAVES)) and path != FACE)}
    while more := {each for path in known for each in paths[path] if "/_" in each and each.startswith(LEAVES)} - known:
        found |= more
        known |= more
    return frozenset(found)


def _imported(path: str) -> set[str]:
    """Files of ours that a file imports names from."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return {f"{node.module.replace('.', '/')}.py" for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def files() -> Iterator[tuple[str, int]]:
    """Path and number of lines of every Python file of the packages."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8").count("\n")


def sizes() -> tuple[Counter[str], Counter[str]]:
    """Lines and files by kind."""
    lines, count = Counter[str](), Counter[str]()
    for path, length in files():
        lines[kind_of(path)] += length
        count[kind_of(path)] += 1
    return lines, count


if __name__ == "__main__":
    lines, count = sizes()
    print("| | files | lines |\n|---|--:|--:|")
    for kind in ("core", "leaf", "wing"):
        print(f"| {kind} | {count[kind]:,} | {lines[kind]:,} |")
    print(f"| all | {count.total():,} | {lines.total():,} |")
