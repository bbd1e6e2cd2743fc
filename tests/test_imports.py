"""Rules on imports: which package may import which, and what start-up may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "zoo": ("zoo",),
    "store": ("store",),
    "evals": ("zoo", "store", "evals"),
    "ablate": ("zoo", "store", "evals", "reports", "ablate"),
    "reports": ("store", "reports"),
    "reports/judge": ("store", "reports.judge"),
    "reports/judge/noise": ("reports.judge.noise",),
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


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_imports_go_one_way(folder: str) -> None:
    place = ROOT / folder
    for path in [place] if place.is_file() else place.rglob("*.py"):
        for name in imports_of(path):
            fits = any(name == package or name.startswith(f"{package}.") for package in MAY_IMPORT[folder])
            assert fits, f"{path.relative_to(ROOT)} may not import {name}"


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def taken(path: Path, modules: Collection[str]) -> set[str]:
    """Modules that a file imports at any depth, and those that importlib loads by a name made of a package's: none with
    a name that begins with an underscore, which are no variants."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(package), names=names):
                found |= {whole if (whole := f"{package}.{alias.name}") in modules else package for alias in names}
            case ast.JoinedStr(values=[ast.Constant(value=str(start)), _]) if start.endswith("."):
                found |= {name for name in modules if name.startswith(start) and "._" not in name}
    return found & set(modules)


def test_no_modules_import_each_other() -> None:
    """Not even for types, under TYPE_CHECKING. CycleError names the modules.

    A package that loads its own modules by name knows none of them: a folder of variants is no circle.
    """
    files = {module_of(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    graph = {name: taken(path, files) - {name} for name, path in files.items()}
    for name, path in files.items():
        if path.name == "__init__.py":
            graph[name] = {each for each in graph[name] if not each.startswith(f"{name}.")}
    TopologicalSorter(graph).prepare()


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return {name.split(".")[0] for name in out.stdout.split()}


def test_reports_and_the_store_load_no_torch() -> None:
    loaded = loaded_after("import reports, reports.page.html.page, reports.judge.findings.summary, store")
    assert not loaded & {"torch", "optuna"}
    assert "polars" in loaded


def test_planning_loads_nothing_for_statistics_frames_or_searches() -> None:
    loaded = loaded_after("import ablate.api.planning")
    assert "torch" in loaded
    assert not loaded & {"optuna", "pandas", "plotly", "polars", "scipy", "transformers"}


def test_zoo_alone_loads_no_torch_and_has_all_that_it_names() -> None:
    assert "torch" not in loaded_after("import zoo")
    assert "torch" in loaded_after("import zoo; zoo.decode.beam_search")
    import zoo  # noqa: PLC0415

    assert all(hasattr(zoo, name) for name in zoo.__all__)


HEAVY = {
    *("torch", "transformers", "tokenizers", "datasets", "lm_eval", "huggingface_hub", "pandas", "pyarrow", "polars"),
    *("plotly", "scipy", "scipy.special", "optuna", "ray", "wandb"),
}


def heavy_after(command: str, store: Path) -> set[str]:
    """Heavy packages that a command has loaded when it ends."""
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('LOADED', *{HEAVY} & {{*sys.modules}}))\n"
        "from ablate.cli import main\n"
        "sys.exit(main())"
    )
    words = command.replace("STORE", str(store)).split()
    out = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert out.returncode == 0, out.stderr
    return set(out.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    ("command", "loads"),
    [
        ("list --store STORE", set()),
        ("claims norm", set()),
        ("replicate", set()),
        ("zoo", set()),
        ("zoo presets", set()),
        ("new STORE/mine", set()),
        pytest.param("atlas --out STORE", {"polars", "scipy"}, marks=pytest.mark.slow),
        ("plan norm_placement --scale cpu --store STORE", {"torch", "scipy", "scipy.special", "tokenizers"}),
    ],
)
def test_each_command_loads_what_it_needs(command: str, loads: set[str], tmp_path: Path) -> None:
    assert heavy_after(command, tmp_path / "runs") == loads


def test_comparing_losses_loads_no_torch(tmp_path: Path) -> None:
    (tmp_path / "losses.csv").write_text("arm,seed,loss\na,0,3.0\na,1,3.1\nb,0,3.2\nb,1,3.4\n")
    assert heavy_after(f"compare {tmp_path}/losses.csv", tmp_path) == {"polars", "scipy", "scipy.special"}


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
