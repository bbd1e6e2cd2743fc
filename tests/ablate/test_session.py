"""Training one run on a corpus that can be learnt."""

import gzip
import json
import math

import numpy as np
import pytest
import torch

import zoo
from ablate.machine.numerics import enforce
from ablate.training.batch import Batch
from ablate.training.divergence import DivergenceWatch, final_reason
from ablate.training.execution import Execution
from ablate.training.loop import TrainingStep, seed_step
from ablate.training.reader import HeldOut, bits_per_byte, validate
from ablate.training.session import Session
from ablate.training.stop import Interrupted
from ablate.training.trained import TrainingProgress, keep_trained
from store import Store, StoreError, checksum
from store.documents import RunNumerics, RunStart
from tests.ablate.conftest import metrics_without_clock
from tests.documents import metrics_of
from zoo.loss import IGNORED


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def run(store, identity, corpus, numerics, **options):
    """With a rest after every step, unless told otherwise."""
    session = Session(store, identity, corpus, numerics, **{"rest_seconds": 0.0, **options})
    return session, session.run()


def test_the_loss_falls_from_that_of_guessing(store, identity, corpus, numerics):
    document = identity(steps=40, lr=0.03, model={"tie_embeddings": False})
    _, ending = run(store, document, corpus, numerics)
    metrics = store.read_metrics(document.digest)
    losses = metrics["loss"].drop_nulls()
    assert losses[0] == pytest.approx(math.log(16), abs=1e-6)  # an untied head starts at zero
    assert losses[-1] < 0.5 * losses[0]
    assert ending.status == "finished"
    assert metrics["validation_loss"].drop_nulls()[-1] == ending.place.validation_loss == ending.loss


def test_every_step_is_logged_once_with_its_rate(store, identity, corpus, numerics):
    document = identity(steps=10, warmup=0.0, schedule="constant", validate_every=0.5)
    run(store, document, corpus, numerics)
    records = metrics_without_clock(store.metrics_path(document.digest))
    assert [r["step"] for r in records if "loss" in r] == list(range(1, 11))
    assert [r["step"] for r in records if "validation_loss" in r] == [0, 5, 10]
    assert {r["lr"] for r in records if "lr" in r} == {0.01}
    assert records[-1]["tokens"] == 10 * 4 * 16


def test_the_same_seed_gives_the_same_bits(tmp_path, identity, corpus, numerics):
    document = identity(steps=12)
    sessions = [run(Store(tmp_path / name), document, corpus, numerics)[0] for name in "ab"]
    first, second = (metrics_without_clock(s.store.metrics_path(document.digest)) for s in sessions)
    assert first == second
    for a, b in zip(*(s.model.parameters() for s in sessions), strict=True):
        assert torch.equal(a, b)


def test_another_seed_gives_other_values(tmp_path, identity, corpus, numerics):
    losses = []
    for seed in (0, 1):
        _, ending = run(Store(tmp_path), identity(seed=seed), corpus, numerics)
        losses.append(ending.place.validation_loss)
    assert losses[0] != losses[1]


@pytest.mark.parametrize("settings", [{}, {"dtype": "bfloat16"}, {"average": {"kind": "ema", "horizon": 0.4}}])
def test_a_run_stopped_at_any_step_ends_with_the_same_bits(tmp_path, identity, corpus, numerics, settings):
    document = identity(steps=9, validate_every=0.3, **settings)
    whole, _ = run(Store(tmp_path / "whole"), document, corpus, numerics)
    store = Store(tmp_path / "stopped")
    stops = iter([False, True] * 9)
    interruptions = 0
    while True:
        try:
            session, ending = run(store, document, corpus, numerics, stop=lambda: next(stops))
        except Interrupted:
            interruptions += 1
            continue
        break
    assert interruptions == 4
    assert ending.status == "finished"
    paths = (s.metrics_path(document.digest) for s in (whole.store, store))
    first, second = map(metrics_without_clock, paths)
    assert first == second
    for a, b in zip(whole.model.parameters(), session.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_an_average_is_what_is_scored_and_stored(tmp_path, identity, corpus, numerics):
    """Training itself goes on as without: averaging the weights of every step here gives what it ends with."""
    plain, averaged = identity(steps=10), identity(steps=10, average={"kind": "ema", "horizon": 0.3})
    session = Session(Store(tmp_path / "plain"), plain, corpus, numerics, rest_seconds=0.0)
    expected = [torch.zeros_like(parameter) for parameter in session.model.parameters()]
    for (step,) in session.rehearse():
        for mean, parameter in zip(expected, session.model.parameters(), strict=True):
            mean.lerp_(parameter.detach(), 1 / min(step.step, 3))
    trained, ending = run(Store(tmp_path / "averaged"), averaged, corpus, numerics)
    for mean, parameter in zip(expected, trained.model.parameters(), strict=True):
        assert torch.allclose(mean, parameter, rtol=1e-5, atol=1e-7)
    _, last = run(Store(tmp_path / "plain"), plain, corpus, numerics)
    of_steps = [
        Store(tmp_path / name).read_metrics(document.digest)["loss"].drop_nulls().to_list()
        for name, document in (("plain", plain), ("averaged", averaged))
    ]
    assert of_steps[0] == of_steps[1]
    assert ending.loss != last.loss
    assert ending.loss == ending.place.validation_loss  # of the same windows, and of the average too


def test_metrics_after_the_saved_state_are_written_once(tmp_path, identity, corpus, numerics):
    """A run resumes as after a kill: the state is of step 2, the metrics have gone on to step 4."""
    store, document = Store(tmp_path), identity(steps=6)
    stops = iter([False, True, *[False] * 9])
    with pytest.raises(Interrupted):
        run(store, document, corpus, numerics, stop=lambda: next(stops))
    for step in (3, 4):
        store.append_metrics(document.digest, metrics_of(step, loss=99.0, lr=1.0))
    run(store, document, corpus, numerics)
    metrics = store.read_metrics(document.digest)
    assert metrics["loss"].drop_nulls().max() < 5
    assert metrics.filter(metrics["lr"].is_not_null())["step"].to_list() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: {**state, "model": {}}, "Missing key"),
        (
            lambda state: {**state, "model": {name: value[:1] for name, value in state["model"].items()}},
            "size mismatch",
        ),
        (lambda state: {**state, "optimizer": {"state": {}, "param_groups": []}}, "param"),
        (lambda state: {**state, "place": {"steps": 1}}, "steps"),
        (lambda state: {}, "model"),
        (lambda state: [1], "indices"),
    ],
)
def test_a_state_of_another_run_is_one_line_with_the_remedy(tmp_path, identity, corpus, numerics, change, said):
    document, store = identity(steps=4), Store(tmp_path)
    with pytest.raises(Interrupted):
        run(store, document, corpus, numerics, stop=lambda: True)
    path = store.state_path(document.digest)
    torch.save(change(torch.load(path, weights_only=True)), path)
    checksum.seal(path, document.digest)
    with pytest.raises(StoreError) as raised:
        run(store, document, corpus, numerics)
    line = str(raised.value)
    assert line.startswith(f"{path}: belongs to another run (") and said in line and "\n" not in line
    assert line.endswith("): remove it to start the run again")


def test_state_is_saved_as_often_as_asked(tmp_path, identity, corpus, numerics):
    document = identity(steps=3)
    for seconds, saved in ((3600.0, False), (0.0, True)):
        store = Store(tmp_path / str(saved))
        run(store, document, corpus, numerics, execution=Execution(checkpoint_seconds=seconds))
        assert store.state_path(document.digest).exists() is saved


def test_a_far_too_large_learning_rate_is_a_result(store, identity, corpus, numerics):
    document = identity(steps=60, lr=1e6, warmup=0.0, grad_clip=None)
    _, ending = run(store, document, corpus, numerics)
    assert ending.status == "diverged"
    assert ending.reason
    assert ending.place.step <= 60


def step(number: int, loss: float, grad_norm: float = 1.0) -> TrainingStep:
    return TrainingStep(number, 0, 0.0, loss, 0.1, grad_norm, 1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_has_diverged_at_once(bad):
    assert "loss" in str(DivergenceWatch(warmup=5).reason(step(1, bad)))
    assert "gradient" in str(DivergenceWatch(warmup=5).reason(step(1, 2.0, bad)))


def test_a_loss_above_its_start_counts_only_after_warmup_and_when_it_stays_there():
    watch = DivergenceWatch(warmup=2, window=3)
    losses = [5.0, 9.0, 9.0, 6.0, 4.0, 6.0, 6.0]
    assert [watch.reason(step(i, loss)) for i, loss in enumerate(losses, 1)] == [None] * 7
    assert "above its start (5.000)" in str(watch.reason(step(8, 6.0)))


def test_a_run_that_learnt_nothing_has_diverged():
    assert final_reason(start=3.0, end=2.9, uniform=3.0) is None
    assert "3.100" in str(final_reason(start=3.0, end=3.1, uniform=4.0))
    assert "nan" in str(final_reason(start=3.0, end=math.nan, uniform=3.0))


def test_a_run_that_stays_above_a_uniform_guess_has_diverged_though_its_loss_fell():
    assert "(6.931)" in str(final_reason(start=9.0, end=7.1, uniform=6.9315))
    assert final_reason(start=9.0, end=6.9, uniform=6.9315) is None
    assert final_reason(start=6.96, end=6.95, uniform=6.9315) is None  # two steps of a model that started there


def test_validation_is_of_all_scored_targets_however_they_are_cut():
    model = zoo.build(zoo.load("small", vocab_size=16, d_model=16, n_layers=1)).eval()
    tokens = torch.arange(5 * 3).reshape(5, 3)
    targets = tokens.masked_fill(tokens % 4 == 0, IGNORED)
    with torch.no_grad():
        log_p = model(tokens).double().log_softmax(dim=-1)
    expected = [-log_p[n // 3, n % 3, n].item() for n in range(15) if n % 4]
    for size in (1, 2, 5, 9):
        batches = [Batch(*pair) for pair in zip(tokens.split(size), targets.split(size), strict=True)]
        assert validate(model, batches, torch.enable_grad) == pytest.approx(expected, rel=1e-5)


def test_bits_per_byte_of_a_uniform_guess_over_bytes_is_eight():
    for size, expected in ((1, 8.0), (4, 2.0)):
        held_out = HeldOut([], np.zeros(100, dtype=np.int64), np.full(100, size))
        assert bits_per_byte(math.log(256), held_out) == pytest.approx(expected)
    assert bits_per_byte(2.0, HeldOut([], np.zeros(100, dtype=np.int64), None)) is None


def test_place_is_all_that_a_session_resumes_from():
    assert TrainingProgress() == TrainingProgress(step=0, seconds=0.0)


def test_training_step_speed(benchmark, identity, corpus, numerics, store):
    session = Session(store, identity(steps=10**6), corpus, numerics, rest_seconds=0.0)
    assert len(benchmark(next, session.rehearse())) == 1


def trained(store, identity, corpus, numerics, **model):
    """The document of a run that is finished and whose model is stored."""
    document = identity(steps=30, lr=0.03, model=model)
    session, ending = run(store, document, corpus, numerics)
    keep_trained(store, document.digest, session.model, None)
    return document, ending


def test_a_run_that_starts_from_another_begins_where_that_ended(store, identity, corpus, numerics):
    source, ended = trained(store, identity, corpus, numerics)
    start = RunStart(run=source.digest, pooling="mean", batches_before=30)
    document = identity(steps=5, lr=1e-6, model={}).model_copy(update={"start": start, "digest": "started"})
    session, ending = run(store, document, corpus, numerics)
    assert store.read_metrics("started")["validation_loss"].drop_nulls()[0] == ended.loss
    assert ending.loss == pytest.approx(ended.loss, abs=1e-3)
    read = {"batch": session.spec.batch, "context": session.spec.context, "seed": document.seed}
    assert (session.reader.batch(1).tokens.numpy() == corpus.batch(30, **read)[:, :-1]).all()


def test_a_start_of_a_wider_model_begins_where_the_narrow_one_ended(store, identity, corpus, numerics):
    narrow = {"d_model": 16, "block": {"mixer": {"kind": "attention", "heads": 2}}}
    source, ended = trained(store, identity, corpus, numerics, **narrow)
    start = RunStart(run=source.digest, pooling="mean", growth="width")
    wide = {"d_model": 32, "block": {"mixer": {"kind": "attention", "heads": 4}}}
    document = identity(steps=5, model=wide).model_copy(update={"start": start, "digest": "wide"})
    session, ending = run(store, document, corpus, numerics)
    assert session.model.spec.d_model == 32
    assert store.read_metrics("wide")["validation_loss"].drop_nulls()[0] == pytest.approx(ended.loss, abs=1e-5)
    assert ending.loss < ended.loss


def test_a_start_that_is_good_does_not_make_a_rise_a_divergence(store, identity, corpus, numerics):
    """A learning rate that first undoes what was learnt is not divergence while it beats guessing."""
    source, ended = trained(store, identity, corpus, numerics)
    start = RunStart(run=source.digest, pooling="mean")
    document = identity(steps=2, lr=0.1, warmup=0.0).model_copy(update={"start": start, "digest": "worse"})
    _, ending = run(store, document, corpus, numerics)
    assert ended.loss < ending.loss < math.log(16)
    assert ending.status == "finished"


def test_a_start_with_fewer_kv_heads_is_pooled_and_resumes_to_the_same_bits(store, identity, corpus, numerics):
    source, _ = trained(store, identity, corpus, numerics, **{"block": {"mixer": {"kind": "attention", "kv_heads": 4}}})
    grouped = {"block": {"mixer": {"kind": "attention", "kv_heads": 2}}}
    start = RunStart(run=source.digest, pooling="mean")
    endings = []
    for name, stops in (("whole", []), ("stopped", [3])):
        document = identity(steps=6, model=grouped).model_copy(update={"start": start, "digest": name})
        steps = iter(range(100))
        try:
            session, ending = run(store, document, corpus, numerics, stop=lambda: next(steps) in stops)  # noqa: B023
        except Interrupted:
            session, ending = run(store, document, corpus, numerics)
        assert session.model.spec.layers[0].mixer.kv_heads == 2
        endings.append(ending.loss)
    assert endings[0] == endings[1]


CHANCE = {"block": {"dropout": 0.2, "stochastic_depth": 0.3, "mixer": {"kind": "attention", "dropout": 0.1}}}


def test_a_run_with_dropout_and_stochastic_depth_resumes_to_the_same_bits(tmp_path, identity, corpus, numerics):
    _resumes_to_the_same_bits(tmp_path, identity(steps=8, model=CHANCE), corpus, numerics)


@pytest.mark.gpu
def test_a_run_with_dropout_and_stochastic_depth_resumes_to_the_same_bits_on_a_gpu(tmp_path, identity, corpus):
    numerics = RunNumerics(device="cuda", dtype="float32", matmul="high")
    document = identity(steps=8, model=CHANCE).model_copy(update={"numerics": numerics})
    _resumes_to_the_same_bits(tmp_path, document, corpus, enforce("cuda", "float32"))


def _resumes_to_the_same_bits(folder, document, corpus, numerics):
    whole, _ = run(Store(folder / "whole"), document, corpus, numerics)
    store, stops = Store(folder / "stopped"), iter([False, False, True] + [False] * 9)
    with pytest.raises(Interrupted):
        run(store, document, corpus, numerics, stop=lambda: next(stops))
    torch.manual_seed(12345)  # another process: its generators are elsewhere
    resumed, _ = run(store, document, corpus, numerics)
    first, second = (metrics_without_clock(s.metrics_path(document.digest)) for s in (whole.store, store))
    assert first == second
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_seeds_and_steps_draw_unlike_masks(identity, corpus, numerics, tmp_path):
    """Losses of one model on one batch differ only in what chance leaves out, which is the same when it is drawn
    again."""
    session = Session(Store(tmp_path), identity(model=CHANCE), corpus, numerics)
    batch = session.reader.batch(1)

    def loss(seed, step):
        seed_step(seed, step, "cpu")
        return session.model.loss(batch.tokens, batch.targets)[0].item()

    places = [(seed, step) for seed in range(4) for step in range(1, 5)]
    drawn = [loss(*place) for place in places]
    assert len(set(drawn)) == len(places)
    assert drawn == [loss(*place) for place in places]


def test_stretches_change_neither_losses_nor_what_is_validated(tmp_path, identity, corpus, numerics):
    document = identity(steps=11, validate_every=0.4)
    logs = []
    for name, seconds in (("each", 0.0), ("long", 3600.0)):
        store = Store(tmp_path / name)
        run(store, document, corpus, numerics, rest_seconds=seconds)
        logs.append(metrics_without_clock(store.metrics_path(document.digest)))
    assert logs[0] == logs[1]


def test_a_run_that_diverges_within_a_stretch_ends_at_that_step(tmp_path, identity, corpus, numerics):
    document = identity(steps=60, lr=1e6, warmup=0.0, grad_clip=None)
    endings = []
    for name, seconds in (("each", 0.0), ("long", 3600.0)):
        store = Store(tmp_path / name)
        _, ending = run(store, document, corpus, numerics, rest_seconds=seconds)
        endings.append((ending.reason, ending.place.step, store.read_metrics(document.digest)["step"].max()))
    assert endings[0] == endings[1]
    assert endings[0][1] == endings[0][2] < 60


def test_saving_takes_no_more_than_a_hundredth_of_the_time(tmp_path, identity, corpus, numerics, monkeypatch):
    """A state that takes two seconds to save, with steps of one second each, by a clock of our own."""
    clock = {"now": 0.0}
    saves = []

    def save(_store, _digest, place, *_rest):
        clock["now"] += 2.0
        saves.append(place.step)

    def stop():
        clock["now"] += 1.0
        return False

    monkeypatch.setattr("ablate.training.session.save_state", save)
    monkeypatch.setattr("ablate.training.session.time.perf_counter", lambda: clock["now"])
    monkeypatch.setattr("ablate.training.session.train", lambda *_, **__: ([step(n, 2.0)] for n in range(1, 901)))
    run(Store(tmp_path), identity(steps=900), corpus, numerics, execution=Execution(checkpoint_seconds=10.0), stop=stop)
    assert saves[:2] == [10, 210]
    assert 2.0 * len(saves) <= 0.01 * clock["now"] + 2.0


def test_a_trace_of_five_steps_is_written_and_changes_nothing(store, tmp_path, identity, corpus, numerics):
    """Steps 10 to 14 of the process, with their operations; a run that ends before has none, and the next can begin."""
    document, short = identity(steps=20), identity(steps=12)
    run(store, short, corpus, numerics, execution=Execution(profile=True))
    assert not store.trace_path(short.digest).exists()
    run(store, document, corpus, numerics, execution=Execution(profile=True))
    with gzip.open(store.trace_path(document.digest), "rt") as file:
        events = json.load(file)["traceEvents"]
    names = {str(event.get("name")) for event in events}
    assert {name for name in names if name.startswith("step ")} == {f"step {n}" for n in range(10, 15)}
    assert {"aten::mm", "aten::embedding"} <= names
    plain = Store(tmp_path / "plain")
    run(plain, document, corpus, numerics)
    traced, untraced = (metrics_without_clock(each.metrics_path(document.digest)) for each in (store, plain))
    assert traced == untraced
    assert not plain.trace_path(document.digest).exists()


def test_unit_weights_are_put_back_after_every_step(store, identity, corpus, numerics):
    document = identity(steps=3, model={"unit_weights": True, "tie_embeddings": False})
    session, _ = run(store, document, corpus, numerics)
    lengths = session.model.head.weight.norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
