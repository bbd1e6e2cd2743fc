"""Lines and files of the core, of its leaves and of the wings, as Markdown.

    python tools/size.py

A line counts whatever it holds, as `wc -l` counts it. Tests are counted apart. A leaf is one variant, source, section
or family in a file of its own, which nothing else names: a folder of leaves grows without making the rest harder to
hold in mind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("zoo", "store", "evals", "reports", "ablate")
WINGS = ("ablate/wings/", "evals/harness/", "zoo/conformance/", "zoo/hf/")
"""Folders whose subfolders, or who themselves, can be taken off."""
LEAVES = (
    *(f"zoo/{axis}/" for axis in ("mixers", "ffns", "norms", "residuals", "positions", "sparsities")),
    *(f"zoo/{axis}/" for axis in ("caches", "features", "block_features", "decode", "presets")),
    *(f"ablate/{kind}/" for kind in ("data/sources", "data/tokenizers", "training/optimizers")),
    *(f"ablate/training/{kind}/" for kind in ("objectives", "probes")),
    *("evals/evaluations/", "reports/page/evaluations/", "reports/page/sections/"),
)


def kind_of(path: str) -> str:
    """`wing`, `leaf` or `core`. Files whose names begin with `_` are shared by the leaves beside them."""
    if path.startswith(WINGS):
        return "wing"
    return "leaf" if path.startswith(LEAVES) and not path.rpartition("/")[2].startswith("_") else "core"


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
