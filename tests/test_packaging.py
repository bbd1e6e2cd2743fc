"""Packages are installed whole: every import is declared, a wheel has all that runs, and clashing names are
reported."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest

import ablate
from ablate.cli import main
from ablate.names import clashes
from ablate.study.yamlfile import read_yaml
from ablate.wings.prepare.schema import study_schema
from tests.test_imports import PACKAGES, ROOT
from tests.unpacking import unpack

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOADERS = ("import_module", "_imported", "find_spec")
"""Functions that import a module by its name."""
NOT_INSTALLED = {"mlflow": "mlflow-skinny", "pynvml": "nvidia-ml-py"}
"""Distributions of modules that need not be installed here, where they are called otherwise."""


FROM_SOURCE = {"flash_attn_interface"}
"""Modules that no index has: FlashAttention-3 is built on the machine whose GPU it is for (docs/training.md)."""


def third_party_imports() -> Iterator[tuple[str, Path]]:
    """Every top-level module of others that ours import, at any depth."""
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in modules_of(node):
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names | PACKAGES | FROM_SOURCE:
                    yield top, path


def modules_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(name)):
            return [name]
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            return [name] if ast.unparse(function).rpartition(".")[2] in LOADERS else []
    return []


def distributions(requirements: list[str]) -> set[str]:
    """Normalised names of what is required."""
    return {normalised(re.match(r"[\w.-]+", each)[0]) for each in requirements}  # type: ignore[index]


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_declared_or_an_extra_that_an_error_names() -> None:
    owners = metadata.packages_distributions()
    source = "".join(
        path.read_text(encoding="utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    )
    offered = re.findall(r"pip install ([^\"`]*)", source)
    named = {normalised(each) for words in offered for each in re.findall(r"[\w.-]+", words)}
    extras = distributions([each for extra in PROJECT["optional-dependencies"].values() for each in extra])
    declared = distributions(PROJECT["dependencies"]) | (extras & named)
    found = dict(third_party_imports())
    assert {"torch", "datasets", "transformers", "wandb"} <= set(found)
    for module, path in found.items():
        names = {normalised(name) for name in owners.get(module, [NOT_INSTALLED.get(module, module)])}
        assert names & declared, f"{path.relative_to(ROOT)} imports {module}, which pyproject.toml does not declare"


def test_no_page_and_no_message_installs_the_other_project_that_pypi_has_under_this_name() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    files += [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    told = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if re.search(r"pip install[^\n]* '?ablate\b(?!-)", path.read_text(encoding="utf-8"))
    }
    assert told == {"docs/installing.md"}, "which warns of it"


def test_a_start_fits_the_schema_is_planned_and_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "questions/mine"]) == 0
    path = tmp_path / "questions" / "mine.yaml"
    assert "ablate run questions/mine.yaml --scale smoke" in capsys.readouterr().out
    jsonschema.Draft202012Validator(study_schema()).validate(read_yaml(path).data)
    assert {scale: len(ablate.load_study(path, scale=scale).arms) for scale in ("smoke", "cpu", "gpu-hour")} == {
        "smoke": 2, "cpu": 2, "gpu-hour": 2,
    }  # fmt: skip
    path.write_text("mine", encoding="utf-8")
    assert main(["new", "questions/mine.yaml"]) == 2
    assert path.read_text(encoding="utf-8") == "mine"
    assert main(["new", "not a name"]) == 2
    assert "questions/mine.yaml exists already" in (said := capsys.readouterr().err) and "a name has letters" in said


def installed(root: Path) -> Path:
    """A site-packages with our names and pip's list of their files."""
    rows = []
    for name in ("zoo", "store", "evals", "reports"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text(f'"""{name} of ablate"""', encoding="utf-8")
        rows.append(f"{name}/__init__.py,sha256=x,{(root / name / '__init__.py').stat().st_size}\n")
    (root / "ablate_lm-0.1.0.dist-info").mkdir()
    (root / "ablate_lm-0.1.0.dist-info" / "RECORD").write_text("".join(rows), encoding="utf-8")
    return root


def clashes_in(root: Path, *first: Path) -> list[str]:
    """Clashes that a new process reports whose path is `first` and then the root."""
    code = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "from pathlib import Path; from ablate.names import clashes\n"
        f"print(*clashes(Path({str(root)!r})), sep='\\n')"
    )
    path = os.pathsep.join(map(str, [*first, root]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=root
    )
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def test_a_name_that_another_distribution_owns_is_warned_of(tmp_path: Path) -> None:
    site = installed(tmp_path / "site")
    assert clashes_in(site) == []
    (tmp_path / "other" / "evals").mkdir(parents=True)
    (tmp_path / "other" / "evals" / "__init__.py").touch()
    (hidden,) = clashes_in(site, tmp_path / "other")
    assert "`import evals` finds" in hidden and "other/evals/__init__.py" in hidden
    (site / "zoo" / "animals.py").touch()
    (site / "reports" / "__init__.py").write_text("theirs", encoding="utf-8")
    shared = clashes_in(site)
    assert [line.rpartition(": ")[2] for line in shared] == ["zoo/animals.py", "reports/__init__.py"]


def test_a_checkout_has_no_clash() -> None:
    assert list(clashes(ROOT)) == []


NOT_IN_THE_SOURCES = {".ci/run", ".gitattributes", ".gitignore"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of this checkout, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    # In a copy, since setuptools builds beside the source.
    for name in tracked():
        (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "copy" / name).write_bytes((ROOT / name).read_bytes())
    code = f"import setuptools.build_meta as backend; backend.build_sdist({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=folder / "copy", capture_output=True, check=True)
    (archive,) = folder.glob("*.tar.gz")
    unpack(archive, folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return list(filter(None, listed.split("\0")))


@pytest.fixture(scope="module")
def site(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder into which pip installed a wheel of the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(sources)]
    subprocess.run(build, check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


@pytest.mark.slow
def test_a_source_distribution_has_every_file(sources: Path) -> None:
    assert [name for name in tracked() if not (sources / name).is_file()] == sorted(NOT_IN_THE_SOURCES)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wheel_in_an_empty_folder_runs_a_shipped_study_and_a_new_one(site: Path, tmp_path: Path) -> None:
    """Without the checkout on the path: the packages of others are those of this environment."""
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-P", "-m", "ablate", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    where = [sys.executable, "-P", "-c", "import ablate; print(ablate.__file__, ablate.__version__)"]
    assert subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout == (
        f"{site}/ablate/__init__.py {PROJECT['version']}\n"
    )
    assert (site / "ablate" / "py.typed").is_file()
    assert "ablate run norm_kind" in run("claims", "norm-center")
    prose = site / "ablate" / "data" / "prose"
    assert {path.name for path in prose.iterdir()} == {"documents.jsonl.xz", "documents.json", "books.json"}
    run("run", "norm_placement", "--scale", "smoke", "--set", "seeds=1", "--engine", "inprocess")
    run("new", "mine")
    run("run", "mine.yaml", "--scale", "smoke", "--set", "seeds=1", "--engine", "inprocess")
    pages = {path.parent.name for path in (tmp_path / "runs" / "studies").glob("*/report.html")}
    assert pages == {"norm_placement-smoke", "mine-smoke"}
