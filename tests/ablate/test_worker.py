"""Requests, workers, engines, results and progress in small."""

import io
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from ablate.data import prepare
from ablate.machine import environment
from ablate.machine.numerics import NumericsError, enforce
from ablate.planning.make_plan import make_plan
from ablate.readable import clock, short
from ablate.running.engines import EngineError, Event, load, names
from ablate.running.engines.local import Pool, Slot
from ablate.running.following import step_text
from ablate.running.options import Options
from ablate.running.progress import Lines
from ablate.running.request import Request
from ablate.running.worker import carry_out, main
from ablate.study.reading import load_study
from ablate.training.execution import Execution
from ablate.training.result import model_flop_utilisation, quartiles, summarise_metrics
from store import Store, claims, processes
from store.documents import GradNorm, Quartiles
from store.documents.run import Count
from tests.ablate.toy import toy_study
from tests.documents import measure_of, metrics_of, result_of, text_meta_of
from tests.pretended_cuda.cards import pretend


@pytest.fixture
def request_for(tmp_path, identity):
    def build(**settings):
        store, corpus = str(tmp_path / "runs"), str(tmp_path / "no corpus")
        return Request(**{"store": store, "corpus": corpus, "identity": identity(), **settings})

    return build


def test_a_request_survives_its_journey(request_for, tmp_path):
    request = request_for(measure={"contexts": [8]}, measure_digest="m", threads=3)
    (tmp_path / "request.json").write_text(request.to_json())
    assert Request.read(tmp_path / "request.json") == request


def test_what_is_missing_follows_from_the_documents(request_for):
    request = request_for(measure_digest="m", evals_digest="e")
    store, digest = Store(request.store), request.digest
    assert request.missing() == ["train", "measure", "evals"]
    store.write_result(result_of(digest))
    assert request.missing() == ["measure", "evals"]
    store.write_measure(digest, "m", measure_of())
    assert request.missing() == ["evals"]
    store.write_result(result_of(digest, status="diverged"))
    assert request.missing() == []


def test_other_numerics_than_the_identity_says_are_refused(request_for):
    given = request_for().identity
    numerics = given.numerics.model_copy(update={"matmul": "high"})
    request = request_for(identity=given.model_copy(update={"numerics": numerics}))
    with pytest.raises(NumericsError, match="this machine has"):
        carry_out(request)
    assert not Store(request.store).run_path(request.digest).exists()


def test_an_exception_is_kept_with_the_run_and_forgotten_by_the_next(request_for, tmp_path):
    request, path = request_for(), tmp_path / "request.json"
    path.write_text(request.to_json())
    assert main([str(path)]) == 1
    store = Store(request.store)
    summary = store.read_error(request.digest)
    assert summary.startswith("DataError:")
    assert "no corpus" in summary
    assert "Traceback" in store.error_path(request.digest).read_text()
    store.write_result(result_of(request.digest))
    assert main([str(path)]) == 0
    assert store.read_error(request.digest) is None


def test_engines_are_files():
    assert {"inprocess", "local"} <= set(names())
    with pytest.raises(EngineError, match="one of inprocess, local"):
        load(Options(engine="nothing"))


def test_a_run_in_this_process_is_stopped_after_a_validation_and_goes_on(tmp_path):
    study = load_study(
        toy_study(tmp_path, "{slow: {train.lr: 1e-3}}", steps=30), "cpu", ["seeds=[0]", "train.validate_every=0.2"]
    )
    plan, store = make_plan(study, matmul=enforce("cpu", study.train.dtype).matmul), Store(tmp_path / "runs")
    run, _ = plan.runs
    prepare(plan.arms[0].data, store.data_dir, study.folder)
    corpus = str(store.data(run.identity.data.digest).path)
    request = Request(store=str(store.root), corpus=corpus, identity=run.identity)
    engine = load(Options(engine="inprocess", device="cpu"))

    def validated():
        losses = store.read_metrics(request.digest).filter(pl.col("validation_loss").is_not_null())
        return losses["step"].to_list()

    def stop_at_12():
        if 12 in validated():
            engine.stop(request.digest)

    started, ended = engine.run([request], stop_at_12)
    assert (started.kind, ended.kind, ended.error) == ("started", "failed", "stopped")
    assert validated() == [0, 6, 12]
    assert request.missing() == ["train"]
    assert [event.kind for event in engine.run([request])] == ["started", "finished"]
    assert validated() == [0, 6, 12, 18, 24, 30]


def test_the_pool_runs_one_worker_per_core_unless_told():
    pool = load(Options(device="cpu"))
    assert isinstance(pool, Pool)
    assert pool.at_once == environment.cores()
    assert load(Options(device="cpu", workers=3)).at_once == 3
    assert all(variables["OMP_NUM_THREADS"] == "1" for variables in pool.places)


def test_gpus_are_shared_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    pretend(monkeypatch, ["A100"] * 2)

    def places(**settings: int) -> list[str]:
        pool = load(Options(device="cuda", **settings))
        assert isinstance(pool, Pool)
        return [variables["CUDA_VISIBLE_DEVICES"] for variables in pool.places]

    assert places() == ["3", "5"]
    assert places(workers_per_gpu=2) == ["3", "5", "3", "5"]
    assert places(workers=3, workers_per_gpu=2) == ["3", "5", "3"]
    with pytest.raises(EngineError, match="5 workers, but there are 2 GPUs, and --workers-per-gpu 2"):
        places(workers=5, workers_per_gpu=2)


def servers(monkeypatch, script):
    """A script in the place of the processes that fork workers; `answer` sends an exit status."""
    begun = "import os, sys\nanswer = lambda status: os.write(int(sys.argv[1]), b'%d\\n' % status)\n"
    command = [sys.executable, "-c", begun + script]
    monkeypatch.setattr("ablate.running.child_process.worker_command", lambda _, pipe: [*command, pipe])


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
        ("import sys; sys.stderr.write('a\\nno space\\n'); sys.exit(3)", "no space"),
        ("input(); answer(-9); input()", "its process was ended by SIGKILL"),
        ("input(); answer(0); input()", None),
        ("input(); answer(7); input()", "its process ended with status 7"),
    ],
)
def test_how_a_worker_ended_is_told(request_for, tmp_path, monkeypatch, script, error):
    request = request_for()
    servers(monkeypatch, script)
    slot = Slot({}, tmp_path / "slot")
    slot.start(request)
    while (event := slot.ended()) is None:
        pass
    slot.close()
    assert event == Event("failed" if error else "finished", request.digest, error)


def test_what_ended_an_earlier_attempt_is_not_said_of_this_one(request_for, monkeypatch):
    request = request_for()
    Store(request.store).write_error(request.digest, "an earlier error", "where it was")
    script = "import sys; sys.stderr.write('no module\\n'); sys.exit(3)"
    servers(monkeypatch, script)
    *_, last = filter(None, Pool("cpu", [{}]).run([request]))
    assert last == Event("failed", request.digest, "no module")


STOPS = """
import os, signal, sys
from pathlib import Path
from ablate.running.request import Request
from store import Store, claims
claims.BEAT_SECONDS = 0.02
request = Request.read(Path(input()))
with Store(request.store).claim(request.digest), Path(request.store, "begun").open("a") as begun:
    begun.write("!")
    begun.flush()
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_worker_that_stands_still_is_begun_again_a_few_times(request_for, tmp_path, monkeypatch):
    request = request_for(execution=Execution(stall_timeout=1.0))
    servers(monkeypatch, STOPS)
    slot = Slot({}, tmp_path / "slot")
    slot.start(request)
    while (event := slot.ended()) is None:
        time.sleep(0.01)
    error = "its process sent no heartbeat for 1 s, 3 times"
    assert event == Event("failed", request.digest, error)
    assert Path(request.store, "begun").read_text() == "!!!"


def test_progress_tells_of_silence(request_for, monkeypatch):
    request, lines = request_for(), []
    store = Store(request.store)
    with Lines(store, "study", {request.digest: ("post", 0)}, tell=lines.append) as progress:
        progress.begin([request])
        progress.show(Event("started", request.digest))
        with store.claim(request.digest):
            (run,) = progress.current.values()
            run.watch.holder()
            monkeypatch.setattr(processes, "waits", lambda pid: {})
            run.watch.unchanged_seconds = 42.0
            progress.show(None)
            assert run.doing == f"process {os.getpid()} sent no heartbeat for 0:42 (timeout 5:00)"


def test_progress_tells_how_far_an_evaluation_is(request_for, monkeypatch):
    request, store = request_for(), Store(request_for().store)
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(Request, "missing", lambda _: ["evals"])
    with (
        Lines(store, "study", {request.digest: ("post", 0)}, tell=str) as progress,
        store.claim(request.digest) as claim,
    ):
        progress.begin([request])
        store.log_path(request.digest).touch()
        claim.count = Count(what="code_names", done=3, total=12)
        progress.show(Event("started", request.digest))
        (run,) = progress.current.values()
        while run.doing == "evaluating":
            progress.show(None)
        assert (run.doing, run.share) == ("evaluating: code_names 3/12", 0.25)


def test_quartiles_are_those_of_statistics():
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    assert quartiles(pl.Series(values)) == Quartiles(median=median, q25=low, q75=high)


def test_metrics_are_summarised_after_warmup():
    """24 steps, 4 of warm-up; norms are 1 but for one spike of 6 after warm-up, one of 9 in it, and one not finite."""
    norms = [1.0] * 24
    norms[1], norms[10], norms[20] = 9.0, 6.0, None
    frame = pl.DataFrame(
        {
            "step": [0, *range(1, 25)],
            "lr": [None, *[0.1] * 24],
            "loss": [None, *map(float, range(24, 0, -1))],
            "grad_norm": [None, *norms],
            "tokens_per_second": [None, *[1.0] * 5, *[100.0] * 19],
        }
    )
    summary = summarise_metrics(frame, warmup=4)
    assert summary.start_loss == 24.0
    assert summary.train_loss == 1.5  # the last 2 of 24 steps
    assert summary.tokens_per_second == Quartiles(median=100.0, q25=100.0, q75=100.0)
    assert summary.grad_norm == GradNorm(median=1.0, max=6.0, spikes=1)


def test_model_flop_utilisation():
    assert model_flop_utilisation(6e6, 1e3, 2e10) == pytest.approx(0.3)
    assert model_flop_utilisation(6e6, None, 2e10) is None


def test_git_state_is_that_of_the_checkout_alone(tmp_path):
    assert environment.git_state(tmp_path) == (None, None)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert environment.git_state(tmp_path) == (head, False)
    (tmp_path / "new_variant.py").touch()
    assert environment.git_state(tmp_path).dirty is True
    (tmp_path / "below").mkdir()
    assert environment.git_state(tmp_path / "below").commit is None


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)]
)
def test_a_container_quota_is_whole_cores(tmp_path, monkeypatch, text, cores):
    """A quota of half a core was taken for none."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    (tmp_path / "cpu.max").write_text(text)
    assert environment.cores(tmp_path / "cpu.max") == cores
    assert environment.cores(tmp_path / "none") == 8


def test_numbers_for_people():
    assert [short(v) for v in (3.0, 950.4, 5234, 1.2e6, 3e9, 4.56e12)] == ["3", "950", "5.23k", "1.2M", "3G", "4.56T"]
    assert [clock(s) for s in (5, 65.4, 3723)] == ["0:05", "1:05", "1:02:03"]
    record = metrics_of(120, loss=3.2144, tokens_per_second=5234.0)
    assert step_text(record, 400) == "step 120/400  loss 3.214  5.23k tokens/s"
    assert "not finite" in step_text(metrics_of(120, loss=math.nan, tokens_per_second=5234.0), 400)


def test_plain_progress_tells_ends_and_time_left(request_for):
    request = request_for()
    store, stream = Store(request.store), io.StringIO()
    with Lines(store, "study", {request.digest: ("post", 0)}, tell=lambda line: print(line, file=stream)) as progress:
        progress.data("tokenise", 0.1)
        progress.data("tokenise", 0.2)
        progress.begin([request])
        progress.show(Event("started", request.digest))
        assert progress.seconds_left() is None
        store.append_metrics(request.digest, metrics_of(10, lr=0.1, loss=2.0, tokens_per_second=100.0))
        progress.show(None)
        elapsed = progress.seconds_left()  # 10 of 20 steps are done: as long again
        assert elapsed is not None
        assert 0 < elapsed < 10
        assert progress.current[request.digest].doing == "step 10/20  loss 2.000  100 tokens/s"
        progress.show(Event("failed", request.digest, "no memory"))
    assert stream.getvalue().splitlines() == ["data: tokenise 10%", "post seed 0: failed: no memory"]
    assert progress.failed == 1


def test_time_left_counts_measuring_and_evaluation_once_a_run_has_ended(request_for, identity, monkeypatch):
    """A run of 20 steps took 100 s from start to end; the next one's training is done, and 40 s have passed."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    first, second, third = (request_for(identity=identity(seed=seed)) for seed in range(3))
    store = Store(first.store)
    labels = {request.digest: ("post", seed) for seed, request in enumerate((first, second, third))}
    with Lines(store, "study", labels, tell=lambda line: None) as lines:
        lines.begin([first, second, third])
        lines.show(Event("started", first.digest))
        assert lines.seconds_left() is None
        store.write_run(first.identity)
        store.write_result(result_of(first.digest, loss=2.0, steps=20))
        now[0] = 100.0
        lines.show(Event("finished", first.digest))
        lines.show(Event("started", second.digest))
        store.append_metrics(second.digest, metrics_of(20, lr=0.1, loss=2.0, tokens_per_second=100.0))
        now[0] = 140.0
        lines.show(None)
        assert lines.seconds_left() == 60 + 100
        assert lines.summary() == "study  1/3 runs  about 2:40 left"
        now[0] = 300.0
        lines.show(None)
        assert lines.seconds_left() == pytest.approx(0.1 * 200 + 100)  # late, and not about to end at any moment


def test_time_left_of_training_is_by_its_steps_alone(request_for, identity, monkeypatch):
    """100 s until the first of 2 × 20 steps, ten steps in 5 s, and long measuring after the twentieth."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    first, second = (request_for(identity=identity(seed=seed)) for seed in range(2))
    store = Store(first.store)
    with Lines(store, "study", {first.digest: ("post", 0), second.digest: ("post", 1)}, tell=str) as lines:
        lines.begin([first, second])
        lines.show(Event("started", first.digest))
        now[0] = 100.0
        lines.show(None)
        for seconds, step in ((105.0, 10), (110.0, 20)):
            now[0] = seconds
            store.append_metrics(first.digest, metrics_of(step, lr=0.1, loss=2.0, tokens_per_second=100.0))
            lines.show(None)
            assert lines.seconds_left() == pytest.approx((40 - step) / 2)
        now[0] = 200.0
        lines.show(None)
        assert lines.summary() == "study  0/2 runs  about 0:10 of training left"
        lines.stage = "tuning, round 1"
        assert lines.summary() == "study  0/2 runs  about 0:10 of training left of tuning, round 1"


@pytest.mark.parametrize(("loss", "steps", "stalled"), [(5.9, 500, True), (5.87, 500, False), (5.9, 20, False)])
def test_a_loss_that_token_frequencies_explain_is_called_stalled(request_for, loss, steps, stalled):
    request = request_for()
    store, lines = Store(request.store), []
    store.data(request.identity.data.digest).write(text_meta_of())  # its unigram loss is 5.98
    store.write_run(request.identity)
    store.write_result(result_of(request.digest, loss=loss, steps=steps))
    with Lines(store, "study", {request.digest: ("post", 0)}, tell=lines.append) as progress:
        progress.begin([request])
        progress.show(Event("started", request.digest))
        progress.show(Event("finished", request.digest))
    assert lines[0].endswith("stalled: the unigram loss is 5.980") == stalled


def test_the_name_of_the_processor_is_not_empty():
    assert environment.cpu_name()
    assert math.isfinite(environment.cores())
    assert environment.cores() >= 1
    assert Path(environment.PROJECT, "ablate").is_dir()
