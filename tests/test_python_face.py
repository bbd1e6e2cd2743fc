"""The public face of `import ablate`: what is listed is documented, typed and there, and the guide's program runs."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, get_args, get_type_hints

import pytest

import ablate
from ablate.cli import main
from ablate.running.options import Options, RunOptions
from tests.many import over

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
FUNCTIONS = [name for name in ablate.__all__ if inspect.isfunction(getattr(ablate, name))]
CLASSES = [name for name in ablate.__all__ if inspect.isclass(getattr(ablate, name))]


def test_every_public_name_is_a_function_a_class_or_the_version() -> None:
    assert {*FUNCTIONS, *CLASSES, "__version__"} == set(ablate.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", ablate.__version__)
    assert set(dir(ablate)) >= set(ablate.__all__)


@over(ablate.__all__)
def test_every_public_name_is_in_the_guide(name: str) -> None:
    assert re.search(rf"`(ablate\.)?{name}`", GUIDE)


@over([*CLASSES, *FUNCTIONS])
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert len((getattr(ablate, name).__doc__ or "").split()) >= 4


@over(FUNCTIONS)
def test_functions_say_what_they_take_return_and_raise(name: str) -> None:
    function = getattr(ablate, name)
    text, parameters = inspect.getdoc(function) or "", inspect.signature(function).parameters
    assert "Returns:" in text and "Example:" in text and ">>> " in text
    assert ("Args:" in text and "Raises:" in text) or not parameters
    listed = text.partition("Args:")[2].partition("Returns:")[0]
    assert [each for each in parameters if not re.search(rf"\b{each}\b", listed)] == []


def test_options_are_the_same_for_type_checkers_callers_and_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert set(RunOptions.__annotations__) == set(Options.model_fields)
    optional = {name for name, field in Options.model_fields.items() if type(None) in get_args(field.annotation)}
    assert {name for name, kind in get_type_hints(RunOptions).items() if type(None) in get_args(kind)} == optional
    for function in (ablate.run, ablate.search):
        parameters = inspect.signature(function).parameters
        assert {name: parameters[name].default for name in Options.model_fields} == dict(Options())
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    flags = set(re.findall(r"--([a-z-]+)", capsys.readouterr().out))
    assert {name.replace("_", "-") for name in Options.model_fields} - flags == {"engine-settings"}


def test_an_option_that_a_function_does_not_take_is_refused() -> None:
    call: Any = ablate.plan  # type checkers refuse it, too
    with pytest.raises(TypeError, match="unexpected keyword argument 'stall_timeout'"):
        call("norm_placement", stall_timeout=60)


@over(CLASSES)
def test_public_methods_and_properties_say_what_they_are(name: str) -> None:
    kinds = (FunctionType, property, cached_property, classmethod)
    members = {member: value for member, value in vars(getattr(ablate, name)).items() if isinstance(value, kinds)}
    assert [member for member, value in members.items() if not (member.startswith("_") or value.__doc__)] == []


def test_errors_are_one_family() -> None:
    errors = [getattr(ablate, name) for name in CLASSES if name.endswith("Error")]
    assert len(errors) >= 9
    assert all(issubclass(error, ablate.AblateError) for error in errors)


def test_importing_ablate_is_light() -> None:
    program = "import ablate, sys; dir(ablate); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    loaded = {name.partition(".")[0] for name in out.stdout.split()}
    assert not loaded & {"torch", "pydantic", "polars", "plotly", "optuna", "numpy", "reports", "zoo"}


@pytest.mark.parametrize("package", ["zoo", "evals", "ablate", "reports"])
def test_packages_say_that_they_are_typed(package: str) -> None:
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert (ROOT / package / "py.typed").is_file()
    assert "py.typed" in packaged["package-data"][package]


@pytest.mark.slow  # half a minute of the processor
def test_the_guide_runs(tmp_path: Path) -> None:
    """The guide runs as a program: workers are processes of their own, which a notebook starts as well."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    program = tmp_path / "guide.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + "\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout
    assert "arms.post.block.norm_placment: unknown key (did you mean 'norm_placement'?)" in said
    assert "6 of 9 runs are there already" in said
    assert "'trade-off'" in said
    assert (tmp_path / "tradeoff.html").stat().st_size > 1_000_000
    assert (tmp_path / "runs" / "studies" / "first-cpu" / "report.html").is_file()
