"""Reading of a run's data: batches made ahead of their step, and held-out text in batches of one shape."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
import torch

import zoo
from ablate.data.corpus import HeldOutRows
from ablate.machine.numerics import enforce
from ablate.training.batch import Batch
from ablate.training.loop import Learner, prefetch, train
from ablate.training.optim import build_optimizer
from ablate.training.reader import TrainingReader, accuracy, validate
from ablate.training.session import Session
from ablate.training.spec import TrainSpec
from store import Store
from tests.ablate.conftest import TinyCorpus
from tests.waits import no_waits
from zoo.loss import IGNORED


def test_batches_come_in_order_and_one_ahead():
    made: list[int] = []
    batches = prefetch(lambda number: made.append(number) or number, range(3, 8))
    assert next(batches) == 3
    assert list(batches) == [4, 5, 6, 7]
    assert made == [3, 4, 5, 6, 7]
    assert list(prefetch(int, range(0))) == []
    endless = prefetch(int, range(10**12))
    assert next(endless) == 0
    endless.close()


def test_the_next_batch_is_made_while_a_step_goes_on():
    """The maker of batch 2 waits until the user of batch 1 is at work: in one thread this would never end."""
    working = threading.Event()

    def make(number: int) -> int:
        if number == 2:
            assert working.wait(timeout=10)
        return number

    for _ in prefetch(make, range(1, 3)):
        working.set()


def test_a_batch_that_cannot_be_made_is_an_error_of_its_step():
    batches = prefetch(lambda number: 1 // (2 - number), range(1, 4))
    assert next(batches) == 1
    with pytest.raises(ZeroDivisionError):
        list(batches)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 6, 9])
def test_held_out_text_in_batches_of_one_shape_scores_as_it_is(batch, numerics):
    """Six windows of 16 tokens. Rows that fill the last batch are not scored."""
    reader = TrainingReader(TinyCorpus(), TrainSpec(context=16, batch=batch), 16, 0, "cpu")
    held_out, whole = reader.held_out("test"), Batch.next_token(TinyCorpus().held_out_rows("test", 16)[0].rows)
    assert len({tuple(part.tokens.shape) for part in held_out.batches}) == 1
    assert all(part.counts.any() and len(part) <= batch for part in held_out.batches)
    assert (held_out.tokens, held_out.n_bytes) == (6 * 16, 6 * 16)
    model = zoo.build(zoo.load("small", vocab_size=16, d_model=16, n_layers=1)).eval()
    nats = validate(model, held_out.batches, numerics.autocast)
    by_row = [
        model.loss(*(part[row : row + 1] for part in (whole.tokens, whole.targets)))[1].item() for row in range(6)
    ]
    assert [nats[held_out.items == row].mean() for row in range(6)] == pytest.approx(by_row, rel=1e-5)
    assert nats.mean() == pytest.approx(model.loss(whole.tokens, whole.targets)[1].item(), rel=1e-6)
    said = (model(whole.tokens).argmax(-1) == whole.targets).double().mean().item()
    assert accuracy(model, held_out.batches, numerics.autocast) == pytest.approx(said)


def test_what_else_a_batch_gives_is_padded_with_it():
    tokens = torch.arange(15).view(5, 3)
    places = tokens + 100
    parts = Batch(tokens, tokens + 1, {"prefix": torch.arange(5)}, places).equal_parts(2)
    assert [part.tokens.shape[0] for part in parts] == [3, 3]
    assert parts[1].given["prefix"].tolist() == [3, 4, 4]
    assert parts[1].targets.tolist() == [[10, 11, 12], [13, 14, 15], [IGNORED] * 3]
    assert [part.sizes_of(np.ones((3, 200), dtype=np.int64)).sum() for part in parts] == [9, 6]


@pytest.mark.gpu
def test_a_training_step_never_waits_for_the_gpu():
    """Once it has begun: whatever is read, is read when training rests."""
    reader = TrainingReader(TinyCorpus(), TrainSpec(context=16, batch=4), 16, 0, "cuda")
    model = zoo.build(zoo.load("small", vocab_size=16, d_model=16, n_layers=1)).cuda()
    optimizer = build_optimizer(model, zoo.roles(model), reader.spec, 16, 1)
    learner = Learner(model.loss, optimizer, reader.spec, enforce("cuda", "bfloat16"))
    for _ in train(learner, reader.batch, 3):
        pass  # kernels are loaded
    with no_waits():
        for step in range(1, 4):
            learner.learn(step, 1e-3, reader.batch(step).to("cuda"))


def test_what_is_no_token_of_a_window_has_no_bytes_and_counts_to_its_first_document():
    """Targets in an order of their own, the second a sentinel that the objective adds."""
    tokens = torch.tensor([[5, 6, 7, 8]])
    batch = Batch(tokens, torch.tensor([[7, 99, IGNORED, 5]]), places=torch.tensor([[2, -1, 3, 0]]))
    assert batch.scored_of(np.array([[0, 0, 1, 1, 1]])).tolist() == [1, 0, 0]
    assert batch.sizes_of(np.array([[3, 2, 4, 1, 1]])).tolist() == [4, 0, 3]


class Parts(TinyCorpus):
    """A share of each part's own of tokens that break the pattern, so that losses differ. Two windows a document."""

    def held_out_rows(self, part, context):
        starts = np.arange(6)[:, None]
        windows = (starts + np.arange(context + 1)) % self.vocab_size
        if part != "judging":
            windows[:, :: {"tuning": 3, "test": 7}[part]] = 0
        return [HeldOutRows(windows, np.broadcast_to(starts // 2, windows.shape), np.full_like(windows, 2))]


@pytest.mark.parametrize("part", ["tuning", "test"])
def test_a_run_ends_with_the_loss_of_the_part_that_it_reads(part, tmp_path, identity, numerics):
    document = identity(steps=12).model_copy(update={"reads": part})
    session = Session(Store(tmp_path), document, Parts(), numerics)
    ending, model = session.run(), session.model.eval()

    def nats(part: str, rows: slice = slice(None)) -> float:
        tokens = torch.from_numpy(Parts().held_out_rows(part, 16)[0].rows[rows])
        with torch.no_grad():
            return model.loss(tokens[:, :-1], tokens[:, 1:])[1].item()

    assert ending.loss == pytest.approx(nats(part), rel=1e-5)
    assert ending.scores.bits_per_byte == pytest.approx(nats(part) / math.log(2) / 2, rel=1e-5)
    logged = Store(tmp_path).read_metrics(document.digest)["validation_loss"].drop_nulls()
    assert logged[-1] == pytest.approx(nats("judging"), rel=1e-5)
    if part == "test":
        assert ending.judged.nats == pytest.approx(nats("judging"), rel=1e-5)
        assert ending.judged.bits_per_byte == pytest.approx(nats("judging") / math.log(2) / 2, rel=1e-5)
    else:
        assert ending.judged is None
    of_documents = [nats(part, slice(2 * item, 2 * item + 2)) for item in range(3)]
    assert [item.nats / item.targets for item in ending.scores.items] == pytest.approx(of_documents, rel=1e-5)
    assert [(item.item, item.targets, item.bytes) for item in ending.scores.items] == [(n, 32, 64) for n in range(3)]


class LongCorpus(TinyCorpus):
    def held_out_rows(self, _part, context):
        starts = np.arange(320)[:, None]
        windows = (starts + np.arange(context + 1)) % self.vocab_size
        return [HeldOutRows(windows, np.broadcast_to(starts, windows.shape), np.full_like(windows, 2))]


def test_on_the_way_some_rows_are_scored_and_all_at_the_end(tmp_path, identity, numerics):
    document = identity(steps=12)
    session = Session(Store(tmp_path), document, LongCorpus(), numerics)
    part, whole = (session.reader.held_out("judging", whole=every) for every in (False, True))
    assert (whole.tokens, whole.n_bytes) == (320 * 16, 320 * 32)
    assert (part.tokens, part.n_bytes) == (40 * 16, 40 * 32)
    assert sorted(set(part.items)) == list(range(0, 320, 8))
    few = TrainingReader(TinyCorpus(), TrainSpec(context=16, batch=16), 16, 0, "cpu")
    assert few.held_out("judging", whole=False).tokens == few.held_out("judging").tokens
    ending, model = session.run(), session.model.eval()
    logged = Store(tmp_path).read_metrics(document.digest)["validation_loss"].drop_nulls()
    for found, rows in ((logged[-1], slice(None, None, 8)), (ending.judged.nats, slice(None))):
        tokens = torch.from_numpy(LongCorpus().held_out_rows("judging", 16)[0].rows[rows])
        with torch.no_grad():
            nats = model.loss(tokens[:, :-1], tokens[:, 1:])[1].item()
        assert found == pytest.approx(nats, rel=1e-5)
