"""`ablate run` on a tiny study: what is trained, what is reused, what is said. Runs in this process."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import reports
import zoo
from ablate.api.study_argument import refuse_code
from ablate.cli import main
from ablate.planning.identity import request_digest
from ablate.running.engines import Event
from ablate.running.rehearsal import CalibrationError
from ablate.study.complaints import StudyError
from ablate.study.reading import load_study
from ablate.training.trained import trained_model
from evals.harness import selection
from evals.spec import EvalSpec
from store import Store


def ablate(capsys, *arguments):
    """Exit status, standard output and standard error of a command."""
    status = main([str(argument) for argument in arguments])
    return (status, *capsys.readouterr())


def run_json(capsys, study, store, *arguments):
    status, out, _ = ablate(capsys, "run", study, "--store", store, "--engine", "inprocess", "--json", *arguments)
    return status, json.loads(out)


def result_times(store):
    return {path: path.stat().st_mtime_ns for path in sorted(store.glob("*/result.json"))}


def test_a_study_ends_with_results_and_a_report(trained):
    store = Store(trained)
    document = store.study("tiny", "cpu").read() or store.study("tiny", "gpu").read()
    runs = [run for arm in document.arms for run in arm.runs]
    assert len(runs) == 4
    for run in runs:
        result = store.read_result(run.digest)
        assert result.status == "finished"
        assert (result.steps, result.tokens) == (20, 2560)
        assert result.flops == result.flops_per_token * 2560
        assert result.bits_per_byte < 8
        assert result.peak_memory_bytes > 10_000_000
        assert result.attention == "fused"
        assert 0 < result.mfu < 1
        assert (result.mfu_published, result.peak_memory_reserved_bytes, result.gpu) == (None, None, None)
        files = {f.name for f in store.model_dir(run.digest).iterdir()}
        assert {name for name in files if not name.startswith("checked-")} == {
            "spec.json",
            "sums.json",
            "tokenizer.json",
            "weights.safetensors",
        }
        assert not store.state_path(run.digest).exists()
    assert len(list(trained.glob("studies/tiny-*/report.html"))) == 1


def test_the_second_time_nothing_is_trained(study, copy, capsys):
    before = result_times(copy)
    status, document = run_json(capsys, study, copy)
    assert status == 0
    assert (document["trained"], document["reused"], document["failed"]) == (0, 4, 0)
    assert result_times(copy) == before


def test_only_the_arm_that_changes_is_trained(study, copy, capsys):
    before = result_times(copy)
    status, document = run_json(capsys, study, copy, "--set", "arms.post.block.norm=layernorm")
    assert status == 0
    assert (document["trained"], document["reused"]) == (2, 2)
    after = result_times(copy)
    assert before.items() <= after.items()
    trained = {path.parent.name for path in after.keys() - before.keys()}
    assert trained == {r["digest"] for r in document["runs"] if r["arm"] == "post"}


def test_another_study_of_the_same_name_does_not_take_the_place_of_a_report(study, copy, tmp_path, capsys):
    other = shutil.copytree(study.parent, tmp_path / "other") / study.name
    other.write_text(study.read_text() + "\n")
    status, out, err = ablate(capsys, "run", other, "--store", copy)
    assert (status, out) == (2, "")
    assert f"has the report of another study of this name, {study.resolve()}" in err
    assert err.count("\n") == 1
    other.write_text(study.read_text())  # a copy is the same study
    assert ablate(capsys, "run", other, "--store", copy, "--engine", "inprocess")[0] == 0


def test_one_more_seed_trains_that_seed(study, copy, capsys):
    _, document = run_json(capsys, study, copy, "--set", "seeds=3")
    assert (document["trained"], document["reused"]) == (2, 4)


def judged(capsys, study, store, seeds):
    """The verdict on the arm after a run with these seeds, and how many judgements the ledger has."""
    status, _, _ = ablate(capsys, "run", study, "--store", store, "--engine", "inprocess", "--set", f"seeds={seeds}")
    assert status == 0
    (path,) = store.glob("studies/*/study.json")
    return reports.summarise(path.parent).arms[1].verdict, len(Store(store).read_ledger("tiny"))


def test_seeds_that_are_added_after_a_verdict_take_it_away(study, copy, capsys):
    """Two seeds were judged when the study ran first; the same two again are the same judgement."""
    before = judged(capsys, study, copy, 2)
    assert before[0] in ("better", "worse", "inconclusive")
    assert before[1] == 1
    assert judged(capsys, study, copy, 3) == ("no verdict", 2)
    assert judged(capsys, study, copy, 2) == (before[0], 2)
    assert judged(capsys, study, copy, [7, 8])[0] != "no verdict"


def test_planned_looks_are_a_test_of_their_own(study, copy, capsys):
    assert judged(capsys, study, copy, "{start: 2, cap: 3}")[0] != "no verdict"


def test_the_json_document_has_what_others_rely_on(study, copy, capsys):
    _, document = run_json(capsys, study, copy)
    assert document["study"] == "tiny"
    assert document["report"].endswith("report.html")
    assert {"digest", "arm", "seed", "status"} <= document["runs"][0].keys()
    baseline, post = document["arms"]
    assert post["edits"] == {"block.norm_placement": "post"}
    assert {
        "name",
        "edits",
        "seeds",
        "loss",
        "loss_interval",
        "bits_per_byte",
        "tokens_per_second",
        "peak_memory_bytes",
        "kv_bytes_per_token",
        "parameters",
        "flops_per_token",
        "evals",
        "verdict",
    } <= post.keys()
    low, high = baseline["loss_interval"]
    assert low < baseline["loss"] < high


@pytest.mark.slow
def test_a_measurement_asked_for_later_is_made_without_training(study, copy, capsys):
    before = result_times(copy)
    edit = "measure={contexts: [16], batches: [1], seconds: 0.01}"
    status, document = run_json(capsys, study, copy, "--set", edit)
    assert (status, document["trained"]) == (0, 0)
    assert result_times(copy) == before
    measured = [run for run in document["runs"] if list((copy / run["digest"]).glob("measure-*.json"))]
    assert [(run["arm"], run["seed"]) for run in measured] == [("pre", 0), ("post", 0)]  # speed knows no seeds


def test_scores_are_compared_item_by_item(study, copy, capsys):
    """The harness's own samples: every difference is that of the scores, and every item was answered by both."""
    _, document = run_json(capsys, study, copy, "--set", "evals={tasks: [heldout_pairs, heldout_text], limit: 12}")
    base, post = document["arms"]
    assert base["eval_differences"] == {}
    assert {task: list(metrics) for task, metrics in post["eval_differences"].items()} == {
        "heldout_pairs": ["acc"],
        "heldout_text": ["bits_per_byte"],
    }
    for task, metrics in post["eval_differences"].items():
        for metric, found in metrics.items():
            values = [arm["evals"][task][metric]["value"] for arm in (post, base)]
            assert found["reason"] is None
            assert found["difference"] == pytest.approx(values[0] - values[1])
            assert found["seeds"] == [0, 1]
            assert found["items"] >= 2


def test_a_study_has_something_to_look_at(study, copy, capsys):
    """Samples, losses token by token and attention: of the text that is there, in the page, without training."""
    small = "samples: {prompts: 2, prompt_tokens: 8, new_tokens: 4}, token_losses: {passages: 3, tokens: 16}"
    edit = f"evals={{tasks: [], {small}, attention: {{tokens: 8}}}}"
    status, document = run_json(capsys, study, copy, "--set", edit)
    assert (status, document["trained"]) == (0, 0)
    page = Path(document["report"]).read_text()
    assert '<h2 id="token-by-token">Token by token <a' in page
    assert "<h3>post against pre</h3>" in page
    assert "What the heads attend to" in page
    assert "attention backend" in page
    sections = [json.loads(path.read_text())["sections"] for path in copy.glob("*/evals-*.json")]
    found = [each for each in sections if "samples" in each]
    assert len(found) == 4
    assert len({json.dumps([t["prompt"] for t in each["samples"]["rows"]]) for each in found}) == 1
    assert len({json.dumps([p["pieces"] for p in each["token_losses"]["rows"]]) for each in found}) == 1


def test_a_study_shows_what_happens_past_the_training_context(study, copy, capsys):
    """Windows of 32 and 64 tokens, the same for both arms: the scores, their paired differences, the figure."""
    edit = "evals={tasks: [], positions: {multiples: [1, 2], tokens: 256}}"
    status, document = run_json(capsys, study, copy, "--set", edit)
    assert (status, document["trained"]) == (0, 0)
    for arm in document["arms"]:
        assert list(arm["evals"]) == ["positions"]
        assert list(arm["evals"]["positions"]) == ["loss_1x", "loss_2x", "extrapolation_gap_2x"]
    base, post = (arm["evals"]["positions"] for arm in document["arms"])
    for metric, found in document["arms"][1]["eval_differences"]["positions"].items():
        assert found["difference"] == pytest.approx(post[metric]["value"] - base[metric]["value"])
        assert (found["items"], found["reason"]) == (4, None)
    assert '<h3 class="finding">Loss by position</h3>' in Path(document["report"]).read_text()


@pytest.mark.slow
def test_a_study_shows_what_arms_recall_and_what_kinds_of_cache_cost(study, copy, capsys):
    edits = ("--set", "evals={tasks: [], recall: {frequent: null, tokens: 512}}")
    caches = "measure={contexts: [32], batches: [1], seconds: 0.001, caches: [int8, {kind: int4, group: 4}]}"
    status, document = run_json(capsys, study, copy, *edits, "--set", caches)
    assert (status, document["trained"]) == (0, 0)
    base, post = (arm["evals"]["recall"] for arm in document["arms"])
    assert list(base) == ["loss_ar_hits_1x", "loss_unseen_1x"]
    for metric, found in document["arms"][1]["eval_differences"]["recall"].items():
        assert found["difference"] == pytest.approx(post[metric]["value"] - base[metric]["value"])
        assert found["reason"] is None
    page = Path(document["report"]).read_text()
    assert '<h3 class="finding">Associative recall by distance</h3>' in page
    assert '<h3 class="finding">Kinds of cache</h3>' in page
    measured = [json.loads(path.read_text()) for path in copy.glob("*/measure-*.json")]
    asked = [each for each in measured if "caches" in each]
    assert all(0 <= each["waiting"] < 1 for each in asked)
    assert len(asked) == 4
    for each in asked:
        assert list(each["caches"]) == ["int8", "int4, group 4"]
        assert abs(each["cache_loss"]["kinds"]["int8"]["added"]["value"]) < 0.05


def test_an_arm_that_diverges_is_a_result(study, tmp_path, capsys):
    edits = ("--set", "arms.post.train.lr=1e6", "--set", "arms.post.train.grad_clip=null")
    status, document = run_json(capsys, study, tmp_path / "runs", *edits, "--set", "seeds=1")
    assert (status, document["trained"], document["failed"]) == (0, 2, 0)
    assert {r["arm"]: r["status"] for r in document["runs"]} == {"pre": "finished", "post": "diverged"}
    assert document["arms"][1]["verdict"] == "diverged"


class Failing:
    """An engine whose every run fails."""

    device, where, here, at_once = "cpu", "a CPU", True, 1

    def run(self, requests):
        for request in requests:
            yield Event("started", request.digest)
            yield Event("failed", request.digest, "it was out of luck")


def test_a_tuning_run_that_fails_is_named_and_ends_the_study(study, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ablate.running.context.load", lambda *_: Failing())
    tune = "tune={space: {train.lr: [1e-3, 1e-2]}}"
    status, out, err = ablate(capsys, "run", study, "--store", tmp_path / "runs", "--json", "--set", tune)
    assert status == 1
    document = json.loads(out)
    assert (document["trained"], document["failed"], document["report"], document["arms"]) == (0, 4, None, [])
    assert "failed: pre with lr=0.001, seed 1000: it was out of luck" in err


def test_step_times_that_cannot_be_measured_are_one_message(study, tmp_path, capsys, monkeypatch):
    def unmeasurable(*_):
        raise CalibrationError("the time of a training step could not be measured: no luck")

    monkeypatch.setattr("ablate.wings.sizing.calibration.Calibration.__call__", unmeasurable)
    status, _, err = ablate(capsys, "run", study, "--store", tmp_path / "runs", "--set", "budget={seconds: 1}")
    assert (status, err) == (2, "ablate: the time of a training step could not be measured: no luck\n")


def test_the_closing_table_and_the_report_are_on_standard_output(study, copy, capsys):
    status, out, err = ablate(capsys, "run", study, "--store", copy)
    assert status == 0
    assert "post" in out
    assert out.rstrip().endswith("report.html")
    assert "4 in the store already" in err


def test_report_renders_again_from_the_store(copy, capsys):
    (report,) = copy.glob("studies/*/report.html")
    report.unlink()
    status, out, _ = ablate(capsys, "report", report.parent)
    assert (status, out.strip()) == (0, str(report))
    assert report.exists()


def test_plan_says_what_would_run_and_writes_nothing(study, tmp_path, capsys):
    status, out, _ = ablate(capsys, "plan", study, "--store", tmp_path / "runs", "--json")
    document = json.loads(out)
    assert status == 0
    assert [run["reused"] for run in document["runs"]] == [False] * 4
    assert {
        "parameters",
        "parameters_embedding",
        "flops_per_token",
        "tokens",
        "steps",
        "kv_bytes_per_token",
        "estimated_seconds",
        "matched",
        "differs",
    } <= document["arms"][0].keys()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "missing.yaml"], "missing.yaml"),
        (["run", "{study}", "--set", "train.lrr=1"], "did you mean 'lr'?"),
        (["run", "{study}", "--engine", "ryay"], "unknown engine 'ryay'"),
        (["plan", "{study}", "--scale", "smok"], "smok"),
        (["report", "nowhere"], "nowhere"),
        (["eval", "0123"], "no such run"),
        (["zoo", "lama3"], "did you mean 'llama3'?"),
    ],
)
def test_bad_input_is_one_message_and_status_2(study, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    status, out, err = ablate(capsys, *(a.replace("{study}", str(study)) for a in arguments))
    assert (status, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


TASK = """task: mine
custom_dataset: !function evals.harness.tasks.heldout.passages
dataset_kwargs: {passages: COUNT, passage_bytes: 64}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
"""


def test_task_files_of_a_study_run_once_they_are_allowed(study, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder, store = tmp_path / "tasks", Store(tmp_path / "runs")
    folder.mkdir()
    (folder / "mine.yaml").write_text(TASK.replace("COUNT", "2"))
    (folder / "utils.py").write_text("print('harmless')")
    edit = f"evals={{include: [{folder}], tasks: [mine]}}"
    said = f"evals: task files can run any code: read {folder}, then allow them once with --allow-code"
    status, _, err = ablate(capsys, "run", study, "--store", store.root, "--set", edit)
    assert (status, said in err, store.root.exists()) == (2, True, False)
    refuse_code(load_study(study, sets=[edit]), allowed=True)
    refuse_code(load_study(study, sets=[edit]), allowed=False)
    (mark,) = (tmp_path / "config" / "ablate" / "allowed").iterdir()
    assert (mark.stat().st_mode & 0o777, mark.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for file in ("utils.py", "deep/er/module.py"):
        before = (folder / file).read_text() if (folder / file).exists() else None
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("print('other code')")
        with pytest.raises(StudyError, match=re.escape(said)):
            refuse_code(load_study(study, sets=[edit]), allowed=False)
        (folder / file).unlink() if before is None else (folder / file).write_text(before)
        refuse_code(load_study(study, sets=[edit]), allowed=False)


def test_permission_is_not_the_stores_to_give(study, tmp_path, monkeypatch):
    """A colleague who writes to the store allows nothing for others."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "theirs"))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mine.yaml").write_text(TASK.replace("COUNT", "2"))
    asked = load_study(study, sets=[f"evals={{include: [{tmp_path / 'tasks'}], tasks: [mine]}}"])
    refuse_code(asked, allowed=True)
    (mark,) = (tmp_path / "theirs" / "ablate" / "allowed").iterdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "ours"))
    with pytest.raises(StudyError, match="allow them once"):
        refuse_code(asked, allowed=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "theirs"))
    monkeypatch.setattr("os.geteuid", lambda: mark.stat().st_uid + 1)
    with pytest.raises(StudyError, match="allow them once"):
        refuse_code(asked, allowed=False)


@pytest.mark.parametrize("way", [["--tasks", "mine", "--include", "tasks"], ["--tasks", "tasks/mine.yaml"]])
def test_a_task_of_ones_own_is_scored_again_when_it_is_edited(copy, capsys, monkeypatch, way):
    monkeypatch.chdir(copy.parent)
    file = copy.parent / "tasks" / "mine.yaml"
    file.parent.mkdir()
    digest = sorted(path.parent.name for path in copy.glob("*/result.json"))[0]
    for count in (2, 3):
        file.write_text(TASK.replace("COUNT", str(count)))
        status, out, _ = ablate(capsys, "eval", digest, "--store", copy, "--json", *way)
        assert (status, json.loads(out)["scores"]["mine"]["bits_per_byte"]["items"]) == (0, count)


def test_another_version_of_a_task_that_ships_is_another_request(tmp_path, monkeypatch):
    folder = shutil.copytree(selection.TASK_FOLDER, tmp_path / "tasks")
    monkeypatch.setattr(selection, "TASK_FOLDER", folder)
    specs = [EvalSpec(tasks=(name,)) for name in ("code_names", "code_brackets")]
    before = [request_digest(spec) for spec in specs]
    file = folder / "code_names.yaml"
    file.write_text(file.read_text().replace("version: ", "version: 9"))
    names, brackets = (request_digest(spec) for spec in specs)
    assert names != before[0] and brackets == before[1]


def test_task_folders_start_from_the_study(study, tmp_path, capsys, monkeypatch):
    copied = shutil.copy(study, tmp_path / "own.yaml")
    shutil.copytree(study.parent / "texts", tmp_path / "texts")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mine.yaml").write_text(TASK)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    edits = ("--set", "evals.include=[tasks]", "--set", "evals.tasks=[mine, tasks/mine.yaml]")
    status, _, err = ablate(capsys, "plan", copied, *edits)
    assert (status, err) == (0, "")


def test_a_store_that_cannot_be_one_is_one_message(study, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", "/proc/nowhere"):
        status, out, err = ablate(capsys, "run", study, "--store", root, "--engine", "inprocess")
        assert (status, out) == (2, "")
        assert str(root) in err.splitlines()[-1]
        assert "Traceback" not in err


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), torch.OutOfMemoryError("CUDA out of memory")]
)
def test_what_cannot_be_read_now_is_not_called_damage(error, copy, monkeypatch):
    """A run that is whole is not to be removed."""

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(zoo, "open", refuse)
    with pytest.raises(type(error)) as found:
        trained_model(Store(copy), next(copy.glob("*/result.json")).parent.name)
    assert found.value is error


def test_damage_in_the_store_is_named(study, copy, capsys):
    digests = sorted(path.parent.name for path in copy.glob("*/result.json"))
    (copy / digests[0] / "model" / "weights.safetensors").write_bytes(b"short")
    status, _, err = ablate(capsys, "eval", digests[0], "--store", copy)
    assert status == 2
    assert err.splitlines()[-1].endswith(f"is damaged: remove {copy / digests[0]} to train it again")
    for command in (("eval",), ("generate", "--prompt", "a"), ("export", copy / "hf")):
        status, _, err = ablate(capsys, command[0], digests[0], *command[1:], "--store", copy)
        assert (status, "is damaged: remove" in err.splitlines()[-1]) == (2, True), command
    (copy / digests[1] / "answers.db").write_bytes(b"junk" * 100)
    asked = ("eval", digests[1], "--store", copy, "--tasks", "heldout_text", "--limit", "2")
    status, _, err = ablate(capsys, *asked)
    assert status == 2
    assert err.splitlines()[-1].endswith("answers.db is damaged: remove it to let the model answer again")
    (copy / digests[1] / "answers.db").unlink()
    assert ablate(capsys, *asked)[0] == 0
    tokenizer = copy / digests[1] / "model" / "tokenizer.json"
    for damage, said in ((lambda: tokenizer.write_text("{"), "is damaged"), (tokenizer.unlink, "is gone")):
        damage()
        status, _, err = ablate(capsys, *asked[:-1], "3")
        assert status == 2
        assert err.splitlines()[-1] == f"ablate: {tokenizer} {said}: remove {copy / digests[1]} to train it again"
    (copy / digests[1] / "result.json").unlink()
    (copy / digests[1] / "state.pt").write_bytes(b"junk")
    status, _, err = ablate(capsys, "run", study, "--store", copy, "--engine", "inprocess")
    assert status == 2
    assert err.splitlines()[-1].endswith(
        "state.pt is damaged, or belongs to another run: remove it to start the run again"
    )


def test_ctrl_c_at_any_moment_is_one_line(study, tmp_path, capsys, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ablate.running.corpora.prepare", interrupted)
    status, _, err = ablate(capsys, "run", study, "--store", tmp_path / "runs", "--engine", "inprocess")
    assert (status, err.splitlines()[-1]) == (130, "ablate: stopped. Run the same command again to resume.")


def test_eval_scores_a_stored_run_once(copy, capsys):
    digest = sorted(path.parent.name for path in copy.glob("*/result.json"))[0]
    command = ("eval", digest[:8], "--store", copy, "--tasks", "heldout_text", "--limit", "2", "--json")
    status, out, _ = ablate(capsys, *command)
    first = json.loads(out)
    assert status == 0
    assert first["scores"]["heldout_text"]["bits_per_byte"]["value"] > 0
    (path,) = copy.glob("*/evals-*.json")
    written = path.stat().st_mtime_ns
    assert json.loads(ablate(capsys, *command)[1]) == first
    assert path.stat().st_mtime_ns == written


def test_eval_names_what_has_no_data_and_makes_it_again_when_it_has(copy, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    digest = sorted(path.parent.name for path in copy.glob("*/result.json"))[0]
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    data = ("--data", f"blimp_wh_island={pairs}", "--data", f"blimp_transitive={pairs}")
    command = ("eval", digest, "--store", copy, "--tasks", "blimp_wh_island,blimp_transitive", "hellaswag", *data)
    (pairs / "transitive.jsonl").write_text('{"sentence_good": "a b", "sentence_bad": "b a"}\n' * 3)
    status, out, err = ablate(capsys, *command, "--json")
    assert status == 1
    assert list(json.loads(out)["scores"]) == ["blimp_transitive"]
    lines = [line for line in err.splitlines() if line.startswith("ablate: ")]
    assert [line.split()[1] for line in lines] == ["blimp_wh_island", "hellaswag"]
    assert lines[1].endswith("python -m evals fetch hellaswag")
    (pairs / "wh_island.jsonl").write_text('{"sentence_good": "a b", "sentence_bad": "b a"}\n')
    tasks = json.loads(ablate(capsys, *command, "--json")[1])["scores"]
    assert set(tasks) == {"blimp_wh_island", "blimp_transitive"}
    status, _, err = ablate(capsys, *command[:4], "--tasks", "blimp", "--data", "blmp=.")
    reason = "is not the name of an evaluated task or group"
    assert (status, err) == (2, f"ablate: --data blmp: {reason}\n")
    status, _, err = ablate(capsys, *command[:4], "--data", "heldout_pairs=nowhere")
    assert (status, err.startswith("ablate: --data heldout_pairs: there is no file or folder ")) == (2, True)


def test_a_study_names_what_it_could_not_evaluate(study, copy, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    edit = ("--set", "evals={tasks: [heldout_pairs, hellaswag], limit: 4}")
    status, _, said = ablate(capsys, "run", study, "--store", copy, "--engine", "inprocess", *edit)
    assert status == 1
    assert said.count("ablate: hellaswag is skipped: the data set Rowan/hellaswag is not in the cache") == 1


def test_eval_reads_a_stored_run_by_position(copy, capsys):
    digest = sorted(path.parent.name for path in copy.glob("*/result.json"))[0]
    command = ("eval", digest, "--store", copy, "--positions", "1", "2", "100000")
    status, out, _ = ablate(capsys, *command)
    assert status == 0
    assert "extrapolation_gap_2x" in out
    assert "held-out text has" in out
    document = json.loads(ablate(capsys, *command, "--json")[1])
    assert list(document["scores"]) == ["positions"]
    rows = document["sections"]["positions"]["rows"]
    assert [row["last"] for row in rows if row["multiple"] == 1][-1] == 32
    longer = [row for row in rows if row["multiple"] == 2]
    assert longer[-1]["last"] == 64
    assert document["scores"]["positions"]["loss_2x"]["value"] is not None
    assert "first" not in rows[-1]
    status, _, err = ablate(capsys, *command[:-1], "0")
    assert (status, err) == (2, "ablate: --positions: must be greater than 0, not 0\n")


def test_eval_asks_a_stored_run_what_it_recalls(copy, capsys):
    digest = sorted(path.parent.name for path in copy.glob("*/result.json"))[0]
    document = json.loads(ablate(capsys, "eval", digest, "--store", copy, "--recall", "--json")[1])
    assert list(document["scores"]) == ["recall"]
    (unseen,) = (row for row in document["sections"]["recall"]["rows"] if row["part"] == "unseen")
    assert unseen["length"] == 32
    assert document["scores"]["recall"]["loss_unseen_1x"]["value"] == unseen["nats_per_token"]
    status, out, _ = ablate(capsys, "eval", digest, "--store", copy, "--recall")
    assert status == 0
    assert "loss_unseen_1x" in out


def test_a_study_for_a_gpu_runs_at_a_smaller_scale_only_if_asked(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(study), "--store", str(tmp_path / "runs"), "--device", "cpu", "--set", "needs=gpu-hour"]
    said = "models of the scale cpu are too small to answer this question, which needs gpu-hour"
    assert main(["run", *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{said}; `--scale cpu` runs it nevertheless" in line
    assert main(["plan", *given]) == 0
    assert said in capsys.readouterr().out
    assert main(["run", *given, "--scale", "cpu", "--engine", "inprocess"]) == 0
    assert said in capsys.readouterr().err
    assert main(["plan", *given[:-2]]) == 0
    assert "4 runs, of which 4 are in" in capsys.readouterr().out, "it changes no run"
    assert main(["plan", *given[:-1], "needs=smoke"]) == 2
