"""Plug-ins: files of a folder that lie elsewhere, by path or by the entry points of an installed package."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import zoo
from ablate.cli import main
from ablate.planning.campaign import CampaignOutcome, RungStudy
from ablate.planning.study_document import study_document
from ablate.study.complaints import StudyError
from ablate.study.reading import load_study
from ablate.wings.plugins.plugin_files import FOLDERS, check_groups, place_of
from ablate.wings.prepare.schema import study_schema
from store.extensions import added_to
from tests.ablate.toy import plan_toy, toy_study
from zoo.conformance import checking, checks
from zoo.conformance.subject import NOT_APPLICABLE, CheckSubject, ConformanceError
from zoo.errors import PluginError
from zoo.settings import registry
from zoo.settings.axis import variants

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "plugin_package"
NORM = (EXAMPLE / "ablate_example" / "meannorm.py").read_text(encoding="utf-8")


PARTS_OF_FEATURES = {"random_depth", "stochastic_depth"}
"""Files beside features that define none."""


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example's norm, as a file of `zoo.norms`."""
    path = tmp_path / "meannorm.py"
    path.write_text(NORM, encoding="utf-8")
    monkeypatch.setenv(registry.VARIABLE, f"zoo.norms/meannorm={path}")
    yield path
    forget()


SHARED = {
    *(("zoo.ffns", "gated"), ("zoo.ffns", "ungated"), ("zoo.ffns", "rwkv"), ("zoo.residuals", "placed")),
    *(("zoo.positions.scalings", "by_factor"), ("zoo.caches", "quantised"), ("ablate.data.sources", "counting")),
}
"""Files that small siblings share, which have the name of none of them."""


def test_every_folder_of_variants_takes_plugins_and_every_file_of_it_says_where_it_belongs() -> None:
    for package in FOLDERS:
        more = added_to(package)
        own = registry.members(package, *more)
        assert own
        for name in sorted(set(own) - PARTS_OF_FEATURES):
            path = Path(str(registry.member(package, name, *more).__file__))
            assert (package, name) in SHARED or place_of(path) == (package, name)


def install(group: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a distribution on the path, with a module for one of our folders."""
    info = folder / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ablate.{group}]\nmeannorm = my_package.meannorm\n")
    monkeypatch.syspath_prepend(folder)


def forget() -> None:
    """Forget the plug-in, as in a new process."""
    sys.modules.pop("zoo.norms.meannorm", None)
    registry.digest_of.cache_clear()


def test_a_plugin_is_a_variant_like_the_others(plugged: Path) -> None:
    norm = variants("zoo.norms")["meannorm"]
    assert list(variants("zoo.norms")) == sorted(variants("zoo.norms"))
    assert norm.model_validate({"eps": 0.5}).parameters(7) == 7
    assert norm.__module__ == "zoo.norms.meannorm"


OPERATIONS = """
import json, sys
from pathlib import Path
import ablate

for path in sys.argv[1:]:
    ablate.plug_in(path)
import zoo
from ablate.wings.starts.lora import LoraSpec, check_lora
from ablate.training.spec import TrainSpec
from ablate.training.transfer import refusals
from zoo.conversion.widening import check_specs

train = TrainSpec.model_validate({"width_transfer": {"base_width": 32}})


def refused(check, *arguments):
    try:
        check(*arguments)
    except zoo.SpecError as error:
        return [str(error)]
    return []


def all_refusals(norm):
    edits = {"d_model": 32, "n_layers": 1, "block.mixer.head_dim": 8, "block.norm": norm}
    model = zoo.load("small", **edits, embedding_scale="sqrt_d_model")
    return [*refusals(model, train), *refused(check_lora, model, LoraSpec()), *refused(check_specs, model, model)]


print(json.dumps({norm: all_refusals(norm) for norm in (Path(path).stem for path in sys.argv[1:])}))
"""


def test_a_plugin_is_refused_by_operations_that_ask_unless_it_declares_them_and_told_why(tmp_path: Path) -> None:
    """One without `supports` builds, and a study with it trains (below)."""
    silent = NORM.replace("    supports: ClassVar[Operations] = EVERY_OPERATION\n", "")
    assert silent != NORM
    paths = {"silent": silent.replace('"meannorm"', '"silent"'), "meannorm": NORM}
    for name, text in paths.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", OPERATIONS, *(f"{name}.py" for name in paths)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "silent": [
            "does not support the norm silent, which declares no `supports`",
            "train.lora: does not support the norm silent, which declares no `supports`: FLOPs of training with "
            "adapters are not counted for it",
            "block.norm: growth: width cannot widen silent, which declares no `supports`",
        ],
        "meannorm": [],
    }


def test_a_name_that_is_taken_is_refused(plugged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, f"zoo.norms/rmsnorm={plugged}")
    with pytest.raises(
        PluginError, match=f"^plug-in {plugged}: the name rmsnorm is already used in norms: choose another$"
    ):
        variants("zoo.norms")


def test_two_plugins_of_one_name_are_refused(plugged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beside an installed package, or beside another file."""
    other = plugged.with_name("other.py")
    other.write_text(NORM, encoding="utf-8")
    monkeypatch.setenv(registry.VARIABLE, f"zoo.norms/meannorm={plugged}{os.pathsep}zoo.norms/meannorm={other}")
    with pytest.raises(
        PluginError, match=f"{other}: the name meannorm is already used in norms by {plugged}: choose another"
    ):
        registry.members("zoo.norms")
    monkeypatch.setenv(registry.VARIABLE, f"zoo.norms/meannorm={other}")
    install("norms", plugged.parent, monkeypatch)
    with pytest.raises(
        PluginError,
        match=r"meannorm is already used in norms by my_package\.meannorm of my-package 1\.0: choose another",
    ):
        registry.members("zoo.norms")


def test_its_digest_is_that_of_its_file_and_counts_only_where_it_is_used(plugged: Path) -> None:
    norm = variants("zoo.norms")["meannorm"]()
    plain = zoo.load("small")
    assert registry.versions_of(plain, {"a": [plain]}) is None
    before = registry.versions_of(plain, {"a": [norm]})
    assert before is not None and list(before) == ["norms.meannorm"]
    assert list(registry.changed(before)) == []
    plugged.write_text(f"{NORM}\n# edited\n", encoding="utf-8")
    assert registry.versions_of(norm) == before  # what is loaded here is still the old one
    forget()
    assert list(registry.changed(before)) == ["norms.meannorm"]
    assert registry.versions_of(variants("zoo.norms")["meannorm"]()) != before


def test_a_group_that_nobody_reads_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("norm", tmp_path, monkeypatch)
    with pytest.raises(
        PluginError,
        match=r"my_package.meannorm of my-package 1.0: there is no group ablate.norm \(did you mean 'norms'",
    ):
        check_groups()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("raise ValueError('line\\nanother')", "ValueError: line another (meannorm.py:1)"),
        ("def made():\n    return 1 / 0\n\n\nmade()", "division by zero (meannorm.py:2, in made)"),
        ("", "expected one spec with kind: Literal['meannorm'], found 0"),
        (NORM.replace("def build", "def built"), "meannorm.py: MeanNorm lacks build"),
    ],
)
def test_a_broken_plugin_is_one_line_with_file_and_reason(text: str, words: str, plugged: Path) -> None:
    plugged.write_text(text, encoding="utf-8")
    with pytest.raises(PluginError) as raised:
        variants("zoo.norms")
    assert str(raised.value).startswith(f"plug-in {plugged}: ") and words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", "not Python: '(' was never closed (line 1)"),
        (
            "x = 1",
            "expected one variant, feature, optimizer, objective, data source, evaluation, tracker or engine, found",
        ),
        (
            NORM.replace('    kind: Literal["meannorm"] = "meannorm"\n', ""),
            "found none: MeanNorm needs a name, such as kind: Literal['mine'] = 'mine' (docs/plugins.md)",
        ),
        (NORM + NORM.replace("meannorm", "other"), "found zoo.norms: meannorm, zoo.norms: other"),
        (NORM, "zoo.norms is already loaded: add plug-ins first"),
    ],
)
def test_a_file_that_cannot_be_plugged_in_is_one_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variants("zoo.norms")
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    assert main(["zoo", "--plugin", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ablate: --plugin {path}: ") and words in line


def run(environment: dict[str, str], folder: Path, *arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-P", "-m", "ablate", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr[-2000:]
    return done.stdout if status == 0 else done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_file_is_in_catalogue_schema_runs_and_their_identity(tmp_path: Path) -> None:
    """With the local engine, whose fork servers load it too."""
    toy_study(tmp_path, "{wide: {d_model: 24}, mean: {block.norm: meannorm}}", steps=20)
    path = tmp_path / "meannorm.py"
    path.write_text(NORM, encoding="utf-8")
    asked = ("toy.yaml", "--scale", "cpu", "--set", "seeds=[0]")
    assert "unknown kind 'meannorm'" in run({}, tmp_path, "run", *asked, status=2)
    listed = json.loads(run({}, tmp_path, "zoo", "--json", "--plugin", str(path)))["variants"]["norms"]
    (entry,) = [each for each in listed if "plugin" in each]
    assert (entry["name"], entry["plugin"]) == ("meannorm", str(path))

    def trained() -> tuple[int, int]:
        found = json.loads(run({}, tmp_path, "run", *asked, "--json", "--plugin", "meannorm.py"))
        assert found["failed"] == 0
        return found["trained"], found["reused"]

    assert trained() == (3, 0)
    identities = [json.loads(each.read_text()) for each in (tmp_path / "runs").glob("*/run.json")]
    assert sorted(list(each.get("plugins", {})) for each in identities) == [[], [], ["norms.meannorm"]]
    path.write_text(f"{NORM}\n# edited\n", encoding="utf-8")
    assert trained() == (1, 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_example_package_installed_from_its_folder(tmp_path: Path) -> None:
    """Its norm and its tracker, with nothing said on the command line."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-deps"]
    copy = tmp_path / "package"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(copy)], check=True)  # setuptools builds beside the source
    subprocess.run([*pip, "--no-build-isolation", "--target", str(tmp_path / "site"), str(copy)], check=True)
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path / "site")])}
    toy_study(tmp_path, "{mean: {block.norm: {kind: meannorm, eps: 1e-3}}}", steps=20)
    asked = ("run", "toy.yaml", "--scale", "cpu", "--set", "seeds=[0]", "--tracker", "ndjson", "--json")
    found = json.loads(run(environment, tmp_path, *asked))
    assert (found["trained"], found["failed"]) == (2, 0)
    plugins = [json.loads(each.read_text()).get("plugins") for each in (tmp_path / "runs").glob("*/run.json")]
    (version,) = [each["norms.meannorm"] for each in plugins if each]
    assert re.fullmatch(r"ablate-example 1\.0 [0-9a-f]{16}", version)
    lines = (tmp_path / "runs/trackers/ndjson/toy-mean-0.ndjson").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows[-1]["status"] == "finished" and [row["step"] for row in rows[:-1]][-1] == 20
    wrong = run(environment, tmp_path, *asked, "--set", "arms.mean.block.norm.epz=1", status=2)
    assert "unknown key (did you mean 'eps'?)" in wrong
    schema = jsonschema.Draft202012Validator(json.loads(run(environment, tmp_path, "schema")))
    study = {"question": "?", "arms": {"mean": {"block.norm": {"kind": "meannorm", "eps": 0.5}}}}
    schema.validate(study)
    assert not jsonschema.Draft202012Validator(study_schema()).is_valid(study)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_job_of_slurm_has_the_plugin(plugged: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="the extra slurm is not installed")
    toy_study(tmp_path, "{mean: {block.norm: meannorm}}", steps=20)
    asked = ("run", "toy.yaml", "--scale", "cpu", "--set", "seeds=[0]", "--json", "--plugin", str(plugged))
    found = json.loads(run({}, tmp_path, *asked, "--engine", "slurm", "--slurm", "cluster=local"))
    assert (found["trained"], found["failed"]) == (2, 0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_search_tries_the_plugin(tmp_path: Path) -> None:
    path = tmp_path / "meannorm.py"
    path.write_text(NORM, encoding="utf-8")
    study = toy_study(tmp_path, "{}", steps=20)
    space = "search: {space: {block.norm: [rmsnorm, meannorm]}, trials: 4, sampler: random}\n"
    study.write_text(study.read_text() + space, encoding="utf-8")
    asked = ("search", "toy.yaml", "--scale", "cpu", "--json")
    assert "unknown kind 'meannorm'" in run({}, tmp_path, *asked, status=2)
    assert json.loads(run({}, tmp_path, *asked, "--plugin", "meannorm.py"))["trials"] == {"finished": 4}
    identities = [json.loads(each.read_text()) for each in (tmp_path / "runs").glob("*/run.json")]
    assert {list(each.get("plugins", {})) == ["norms.meannorm"] for each in identities} == {True, False}


def test_a_study_knows_the_files_that_its_command_plugged_in(plugged: Path) -> None:
    plan = plan_toy(toy_study(plugged.parent, "{wide: {d_model: 24}}"), seeds=[0])
    document = study_document(CampaignOutcome((RungStudy(plan),)))
    assert document.plugin_files == (str(plugged),)
    assert f"--plugin {plugged}" in document.command()


def test_a_suggested_command_has_the_plugins_of_the_command_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    new = importlib.import_module("ablate.wings.prepare.commands.new")
    new.run(argparse.Namespace(name="mine", plugin=["fox.py", "my norm.py"]))
    command = "ablate run mine.yaml --scale smoke --plugin fox.py --plugin 'my norm.py'"
    assert capsys.readouterr().out.splitlines()[-1] == f"try it: {command}"


def test_an_unknown_kind_may_be_a_plugin_that_was_not_given(tmp_path: Path) -> None:
    words = r"unknown kind 'my_fox': one of .*, ttt \(a plug-in's\? give --plugin FILE\)$"
    with pytest.raises(zoo.SpecError, match=words):
        zoo.load("small", **{"block.mixer": "my_fox"})
    toy_study(tmp_path, "{fox: {block.mixer: my_fox}}")
    with pytest.raises(StudyError, match=words):
        load_study(tmp_path / "toy.yaml", "cpu")


def always_wrong(subject: CheckSubject) -> None:
    """Nothing is right. Ever."""
    raise ConformanceError(f"{subject.spec.d_model} features are too few")


def no_numbers(subject: CheckSubject) -> None:
    """Logits are numbers."""
    raise ConformanceError("logits are not finite")


def seldom(subject: CheckSubject) -> str:
    """Some models."""
    return NOT_APPLICABLE


def check_table(kind: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Cells of what `ablate zoo --check` prints of a variant that fails, line by line."""
    assert main(["zoo", "--check", kind]) == 1
    return [re.split(r" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]


def test_the_checks_of_a_variant_are_a_table_with_the_simplest_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "CHECKS", (checks.shape, always_wrong, seldom))
    rows = check_table("l2norm", capsys)
    assert ["shape", "Logits have the declared shape, in float32, and are finite", "holds in all 1"] in rows
    assert ["always_wrong", "Nothing is right", "fails in 1 of 1"] in rows
    assert rows[-2:] == [["always_wrong: 24 features are too few"], ["in norm: l2norm"]]
    assert ["seldom", "Some models", "not applicable"] in rows


def test_nothing_else_is_said_of_logits_that_are_no_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "CHECKS", (no_numbers, always_wrong))
    monkeypatch.setattr(checking, "shape", no_numbers)
    rows = check_table("l2norm", capsys)
    assert ["no_numbers", "Logits are numbers", "fails in 1 of 1"] in rows
    assert ["always_wrong", "Nothing is right", "not checked"] in rows


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("l2nrom", r" \(did you mean 'l2norm'\?\)$"),
        ("fading", r": see `ablate zoo` \(a plug-in's\? give --plugin FILE\)$"),
    ],
)
def test_a_part_that_there_is_not(kind: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "--check", kind]) == 2
    assert re.search(f"--check {kind}: there is no such part of a model{advice}", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.slow
def test_a_plugin_that_raises_is_tried_once_and_its_error_is_said_once_with_its_place(tmp_path: Path) -> None:
    """Checks that need what failed are not tried."""
    path = tmp_path / "meannorm.py"
    path.write_text(NORM.replace("return x / x.abs()", "return x / self.absent()"), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "ablate", "zoo", "--check", "meannorm", "--plugin", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (line,) = (number for number, text in enumerate(NORM.splitlines(), 1) if "return x / x.abs()" in text)
    reason = "AttributeError: 'MeanNormLayer' object has no attribute 'absent'"
    lines = done.stdout.splitlines()
    (said,) = [each for each in lines if reason in each]
    assert said == f"shape: {reason} (meannorm.py:{line}, in forward)"
    assert lines[lines.index(said) + 1 :] == ["    in norm: meannorm"]
    assert len(re.findall(r"not checked *$", done.stdout, re.MULTILINE)) == len(checks.CHECKS) - 1
    assert re.search(r"^stopped after 1 of \d+ models: its forward pass raises an error$", done.stderr, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_that_fails_in_a_plugin_says_where(tmp_path: Path) -> None:
    toy_study(tmp_path, "{mean: {block.norm: meannorm}}", steps=20)
    path = tmp_path / "meannorm.py"
    path.write_text(NORM.replace("return x / x.abs()", "return x / self.absent()"), encoding="utf-8")
    asked = ("run", "toy.yaml", "--scale", "cpu", "--set", "seeds=[0]", "--plugin", "meannorm.py")
    assert re.search(r"no attribute 'absent' \(meannorm\.py:\d+, in forward\)", run({}, tmp_path, *asked, status=1))
