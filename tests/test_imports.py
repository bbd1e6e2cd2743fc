"""Who may import whom, and what start-up may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "zoo": ("zoo",),
    "evals": ("zoo", "evals", "ablate.store"),
    "ablate": ("zoo", "evals", "ablate"),
    "ablate/store": ("ablate.store",),
    "reports": ("reports", "ablate.store"),
}
PACKAGES = {package for package in MAY_IMPORT if "/" not in package}


def imports_of(path: Path) -> set[str]:
    """Modules of ours that a file imports, at any depth and also under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] in PACKAGES}


def may_report(path: Path) -> bool:
    """Whether a file is of the command line or of the Python face."""
    return path.parent == ROOT / "ablate" or path.parent.name in ("commands", "api")


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_imports_go_one_way(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        allowed = (*MAY_IMPORT[folder], *(["reports"] if may_report(path) else []))
        for name in imports_of(path):
            fits = any(name == package or name.startswith(f"{package}.") for package in allowed)
            assert fits, f"{path.relative_to(ROOT)} may not import {name}"


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return {name.split(".")[0] for name in out.stdout.split()}


def test_reports_and_the_store_load_no_torch() -> None:
    loaded = loaded_after("import reports, reports.pages.page, reports.findings.summary, ablate.store")
    assert "torch" not in loaded
    assert "polars" in loaded


def test_zoo_alone_loads_no_torch_and_has_all_that_it_names() -> None:
    assert "torch" not in loaded_after("import zoo")
    assert "torch" in loaded_after("import zoo; zoo.decode.beam_search")
    import zoo  # noqa: PLC0415

    assert all(hasattr(zoo, name) for name in zoo.__all__)


def test_help_loads_nothing_heavy() -> None:
    statement = (
        "import ablate.cli\ntry: ablate.cli.main(['--help'])\nexcept SystemExit as e: assert e.code in (0, None)\n"
    )
    code = f"{statement}\nimport sys; print('MODULES', *sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    loaded = {name.split(".")[0] for name in out.stdout.partition("MODULES")[2].split()}
    heavy = {
        "torch",
        "transformers",
        "pydantic",
        "polars",
        "pandas",
        "plotly",
        "scipy",
        "optuna",
        "lm_eval",
        "ray",
        "wandb",
    }
    assert loaded & heavy == set()
