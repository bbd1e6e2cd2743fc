"""An answer is given again without being computed, and never after anything that it depends on has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from ablate.cli import main
from ablate.commands._remembered import Answer, remembered
from ablate.commands._remembered import folder as answers
from ablate.machine.dependencies import watched
from ablate.planning import identity
from ablate.planning.plan import Plan, make_plan
from ablate.study.reading import load_study
from tests.ablate.toy import toy_study

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "pydantic", "polars", "scipy", "statsmodels", "plotly", "optuna", "zoo.spec"}


@dataclass
class Command:
    """Reads a file and a folder, looks for a file that is not there, and writes one."""

    place: Path
    options: Namespace = field(default_factory=lambda: Namespace(command=ModuleType("command"), study="x"))
    besides: Callable[[], object] = lambda: None
    lasts: bool = True
    computed: int = 0

    def compute(self) -> Answer:
        self.computed += 1
        text = (self.place / "read.txt").read_text()
        names = [path.name for path in (self.place / "listed").iterdir()]
        temporary = self.place / ".page.tmp"
        temporary.write_text(text)
        temporary.replace(self.place / "page.html")
        try:
            other = (self.place / "absent.txt").read_text()
        except FileNotFoundError:
            other = None
        self.besides()
        return {"said": [text, names, other]}

    def ask(self) -> Answer:
        return remembered(self.options, self.compute, lambda _answer, _stamps: self.lasts)

    def is_kept(self) -> bool:
        before = self.computed
        self.ask()
        return self.computed == before


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("ABLATE_ANSWERS", str(tmp_path / "answers"))
    place = tmp_path / "place"
    (place / "listed").mkdir(parents=True)
    (place / "read.txt").write_text("one")
    found = Command(place)
    found.ask()
    return found


def test_an_answer_is_computed_once(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.ask() == {"said": ["one", [], None]}
    assert command.computed == 1
    assert capsys.readouterr().err == "ablate: nothing has changed since this was last asked\n"


CHANGES: dict[str, Callable[[Command], object]] = {
    "a file that was read": lambda c: (c.place / "read.txt").write_text("two"),
    "a file that was read is gone, and is there again": lambda c: os.utime(c.place / "read.txt", (1, 1)),
    "a new file in a folder": lambda c: (c.place / "listed" / "new").touch(),
    "a file that was not there": lambda c: (c.place / "absent.txt").touch(),
    "what was written is edited": lambda c: (c.place / "page.html").write_text("mine"),
    "what was written is gone": lambda c: (c.place / "page.html").unlink(),
    "another option": lambda c: setattr(c.options, "study", "y"),
    "the environment": lambda c: os.environ.__setitem__("CUDA_VISIBLE_DEVICES", "7"),
    "one bit of the answer": lambda c: flip(next(answers().iterdir())),
    "the answer is cut off": lambda c: os.truncate(next(answers().iterdir()), 40),
}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"one")] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_a_change_it_is_computed_anew(
    command: Command, change: Callable[[Command], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    command.ask()
    change(command)
    assert not command.is_kept()
    assert command.is_kept()


def test_what_may_come_out_otherwise_is_not_kept(command: Command) -> None:
    """A process was asked, a warning shown, a file changed by another hand meanwhile, or the command says so."""
    unsure: dict[str, Callable[[], object]] = {
        "process": lambda: subprocess.run(["true"], check=True),
        "file": lambda: os.utime(command.place / "read.txt", (2, 2)),
    }
    command.options.study = "unsure"
    for besides in unsure.values():
        command.besides = besides
        assert not command.is_kept()
    command.besides, command.lasts = lambda: None, False
    assert not command.is_kept()
    command.lasts, command.besides = True, lambda: warnings.warn("look out", stacklevel=1)
    with pytest.warns(UserWarning, match="look out"):
        command.ask()
    command.besides = lambda: None
    assert not command.is_kept()
    assert command.is_kept()


def test_dependencies_are_noted_in_their_block_alone(tmp_path: Path) -> None:
    (tmp_path / "before").touch()
    with watched() as found:
        (tmp_path / "during").touch()
        (tmp_path / "during").read_text()
    (tmp_path / "before").read_text()
    assert found.written == {str(tmp_path / "during")}
    assert set(found.seen) == {str(tmp_path / "during")}
    assert __file__ in (found.stamps() or {})


def asked_again(words: list[str], environment: dict[str, str]) -> tuple[str, set[str]]:
    """What another process prints, and the modules that it has loaded."""
    code = f"import sys; from ablate.cli import main; main({words}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout, set(done.stderr.split())


def test_an_answer_is_shown_again_without_any_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    environment = dict(os.environ)
    said = {"question": "Why?", "tables": [[None, [["arm", "steps"], ["pre", "3"]]]], "notes": ["matched"]}
    monkeypatch.setattr("ablate.commands.plan._said", lambda options: said)
    words = ["plan", "norm_placement", "--store", str(tmp_path)]
    assert main(words) == 0
    shown, loaded = asked_again(words, environment)
    assert shown == capsys.readouterr().out
    assert loaded & HEAVY == set()


@pytest.mark.slow
def test_plan_run_and_report_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that found nothing to do, and the plan and the pages of a study that is done."""
    monkeypatch.chdir(ROOT)
    environment, store = dict(os.environ), str(tmp_path / "runs")
    path = toy_study(tmp_path, "{wide: {block.ffn.d_ff: 48}}")
    assert main(["run", str(path), "--store", store]) == 0
    for words in (["run", str(path), "--store", store], ["plan", str(path), "--store", store], ["report", store]):
        capsys.readouterr()
        assert main(words) == 0
        shown, loaded = asked_again(words, environment)
        assert shown == capsys.readouterr().out
        assert loaded & HEAVY == set()
    next((tmp_path / "runs").glob("*/result.json")).unlink()
    assert "6 runs, of which 5 are" in asked_again(["plan", str(path), "--store", store], environment)[0]


def test_seeds_cost_no_planning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the runs of an arm have in common is resolved, written and hashed once; digests are as if it were not."""
    counts: dict[int, int] = {}
    canonical = identity.canonical

    def planned(seeds: int) -> Plan:
        asked = load_study({**TOY, "seeds": seeds}, "cpu")
        counts[seeds] = 0

        def counted(data: object) -> str:
            counts[seeds] += 1
            return canonical(data)  # type: ignore[arg-type]

        monkeypatch.setattr(identity, "canonical", counted)
        return make_plan(asked)

    few, many = planned(2), planned(2000)
    assert counts[2] == counts[2000]
    assert [run.digest for run in many.arms[1].runs[:2]] == [run.digest for run in few.arms[1].runs]
    last = many.arms[1].runs[-1]
    whole = last.identity.model_dump(by_alias=True, exclude={"digest"})
    assert last.digest == identity.digest_of({**whole, "model": many.arms[1].spec.resolve()})
    assert len({run.digest for run in many.runs}) == len(many.runs) == 4000
    seeds = [run.seed for run in many.arms[0].runs]
    assert seeds[:1000] == list(range(1000))
    assert not set(seeds) & set(range(1000, 100_000)), "those choose settings"


TOY: dict[str, object] = {
    "question": "Does it matter?",
    "base": {"preset": "small", "d_model": 16, "n_layers": 1, "block.mixer.heads": 2},
    "arms": {"wide": {"block.ffn.d_ff": 48}},
    "data": {"source": "copying"},
    "train": {"context": 32, "batch": 4},
    "budget": {"tokens": 3840},
    "measure": None,
    "evals": None,
    "tune": "off",
}
