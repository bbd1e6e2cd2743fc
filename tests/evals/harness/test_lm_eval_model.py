"""Stored models in lm-eval's command line and Python API."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import lm_eval
import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer

import zoo
from evals.harness.__main__ import main
from evals.harness.lm import ZooLM
from evals.harness.lm_eval_model import ModelFolderError, SavedZooLM
from store import Store
from tests.documents import run_of, text_meta_of
from tests.evals.bytelevel import EOS
from zoo.model import Decoder

PAIRS = [("The cat", " sat"), ("", "nothing before"), ("x" * 80, " a long context")]
REQUESTS = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(PAIRS)]
TASK = """
task: capitals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/items.jsonl}}, cache_dir: {folder}/cache}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture
def run(tmp_path: Path, model: Decoder, byte_tokenizer: Tokenizer) -> Path:
    """The folder of a run in a store, as far as an evaluation needs it."""
    folder = tmp_path / "runs" / "0123456789abcdef"
    zoo.save(model, folder / "model")
    (folder / "model" / "tokenizer.json").write_text(byte_tokenizer.to_str())
    store = Store(tmp_path / "runs")
    store.write_run(run_of(folder.name, train={"context": 32}))
    store.data("data0").path.mkdir(parents=True)
    store.data("data0").write(text_meta_of(eos=EOS))
    return folder


def test_it_answers_as_the_model_does_that_was_stored(run: Path, model: Decoder, byte_tokenizer: Tokenizer) -> None:
    expected = ZooLM(model, byte_tokenizer, eos=EOS, context=32).loglikelihood(REQUESTS)
    whole, bare = get_model("zoo")(path=str(run)), SavedZooLM(str(run / "model"), device="cpu", batch_size="1")
    for lm in (whole, bare):
        found = lm.loglikelihood(REQUESTS)
        assert [p for p, _ in found] == pytest.approx([p for p, _ in expected], abs=1e-4)
        assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


def test_a_folder_without_a_run_is_asked_for_what_it_lacks(run: Path, tmp_path: Path) -> None:
    moved = (run / "model").rename(tmp_path / "exported")
    with pytest.raises(ModelFolderError, match="context="):
        SavedZooLM(str(moved))
    with pytest.raises(ModelFolderError, match="eos="):
        SavedZooLM(str(moved), context=32)
    with pytest.raises(ModelFolderError, match="no such token"):
        SavedZooLM(str(moved), context=32, eos="<end>")
    assert SavedZooLM(str(moved), context=32, eos=65).eot_token_id == 65
    with pytest.raises(ModelFolderError, match=r"nowhere: .* spec\.json is missing"):
        SavedZooLM("nowhere")


def test_bfloat16_is_another_computation(run: Path) -> None:
    exact, rounded = (
        SavedZooLM(str(run), device="cpu", dtype=d).loglikelihood(REQUESTS) for d in ("float32", "bfloat16")
    )
    assert rounded != exact
    assert [p for p, _ in rounded] == pytest.approx([p for p, _ in exact], rel=0.05)


def test_lm_evals_cache_of_one_model_is_refused_to_another(run: Path, model: Decoder, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache.db")
    first = CachingLM(SavedZooLM(str(run)), cache).loglikelihood(REQUESTS)
    assert CachingLM(SavedZooLM(str(run)), cache).loglikelihood(REQUESTS) == first
    zoo.save(zoo.build(model.spec, seed=4), run / "model")
    with pytest.raises(ModelFolderError, match="another model"):
        CachingLM(SavedZooLM(str(run)), cache)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = [{"question": f"{n} and", "choices": ["so on", "not"], "answer": n % 2} for n in range(6)]
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "capitals.yaml").write_text(TASK.format(folder=folder))
    return folder


@pytest.fixture
def options(run: Path, task: Path, tmp_path: Path) -> list[str]:
    """lm-eval's own."""
    scored = ["--model", "zoo", "--model_args", f"path={run},device=cpu", "--tasks", str(task / "capitals.yaml")]
    return ["lm-eval", *scored, "--batch_size", "auto", "--output_path", str(tmp_path / "out"), "--limit", "5"]


def assert_written_scores_are_those_of_python(run: Path, task: Path, out: Path) -> None:
    (written,) = out.rglob("results_*.json")
    shell = json.loads(written.read_text())["results"]["capitals"]
    manager = TaskManager(include_path=task, include_defaults=False)
    found = lm_eval.simple_evaluate(
        model="zoo", model_args={"path": str(run)}, device="cpu", tasks=["capitals"], task_manager=manager, limit=5
    )["results"]["capitals"]
    assert shell["acc,none"] == found["acc,none"]
    assert shell["acc_stderr,none"] == pytest.approx(found["acc_stderr,none"])


def test_the_command_and_python_give_the_same_scores(
    run: Path,
    task: Path,
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without the index of lm-eval's own thousands of tasks, which takes most of its time to start."""
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr("lm_eval.tasks.TaskManager", functools.partial(TaskManager, include_defaults=False))
    assert main(options) == 0
    assert "capitals" in capsys.readouterr().out
    assert_written_scores_are_those_of_python(run, task, tmp_path / "out")


@pytest.mark.slow
def test_the_shell_and_python_give_the_same_scores(run: Path, task: Path, options: list[str], tmp_path: Path) -> None:
    """A subprocess, offline."""
    command = [sys.executable, "-m", "evals", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "capitals" in done.stdout
    assert_written_scores_are_those_of_python(run, task, tmp_path / "out")


def test_help_says_what_there_is_and_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    assert "lm-eval --model zoo" in capsys.readouterr().out
    assert main(["lm_evall"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
