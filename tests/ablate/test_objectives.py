"""Objectives against the text that they were made of, told back token by token, and their costs against counts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import zoo
from ablate.machine.numerics import enforce
from ablate.planning.campaign import CampaignOutcome, RungStudy
from ablate.planning.make_plan import make_plan
from ablate.planning.study_document import study_document
from ablate.study.reading import load_study
from ablate.study.study import StudyError
from ablate.training.batch import Batch
from ablate.training.objectives import Objective
from ablate.training.objectives.blank_infilling import BlankInfilling
from ablate.training.objectives.masked import Masked
from ablate.training.objectives.next_token import NextToken
from ablate.training.objectives.prefix import Prefix
from ablate.training.objectives.span_corruption import SpanCorruption
from ablate.training.session import Session
from ablate.training.spec import TrainSpec
from reports.page.wording.method_words import method
from store import Store
from store.documents import StudyObjective
from tests.ablate.conftest import TinyCorpus
from tests.ablate.toy import plan_toy, run_toy, toy_study
from tests.documents import run_of
from zoo.loss import IGNORED
from zoo.settings.axis import variants

TEXT = 40
"""Ids of the text; those of an objective come after them."""
KINDS: list[tuple[Objective, dict[str, object]]] = [
    (NextToken(), {}),
    (Masked(), {"visible": "all"}),
    (Prefix(), {"visible": "prefix"}),
    (SpanCorruption(), {"encoder": {"n_layers": 2}}),
    (BlankInfilling(), {"visible": "prefix"}),
]
every_kind = pytest.mark.parametrize(("objective", "edits"), KINDS, ids=lambda value: getattr(value, "kind", ""))


def windows_of(rows: int, context: int, seed: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(TEXT, size=(rows, context + 1))


def batch_of(objective: Objective, windows: np.ndarray[tuple[int, int], np.dtype[np.int64]], seed: int = 0) -> Batch:
    vocabulary = TEXT + objective.extra_tokens(windows.shape[1] - 1)
    return objective.batch(windows, vocabulary, np.random.default_rng(seed), eos=0)


def test_documents_apart_score_as_each_alone() -> None:
    """Rows with documents of 1, 2, … tokens, which begin with `eos`, against a pass over each document."""
    windows = windows_of(3, 21)
    windows[:, [0, 1, 3, 6, 10, 15]] = 0
    windows[0, 0] = 5  # a row may begin within a document
    batch = batch_of(NextToken(documents="apart"), windows)
    model = zoo.build(zoo.load("small", vocab_size=TEXT, d_model=16, n_layers=2)).eval()
    found = model.nats(batch.tokens, batch.targets, **batch.given)
    for row, tokens in enumerate(batch.tokens):
        begins = sorted({0, *(tokens == 0).nonzero()[:, 0].tolist()})
        for start, end in zip(begins, [*begins[1:], len(tokens)], strict=True):
            alone = model.nats(batch.tokens[row : row + 1, start:end], batch.targets[row : row + 1, start:end])[0]
            torch.testing.assert_close(found[row, start:end], alone)
    longer = batch.after([7, 8])
    assert longer.given["documents"][:, 1:].equal(batch.given["documents"])


@pytest.mark.parametrize(
    ("arms", "data", "why"),
    [
        ("{state: {block.mixer: mamba2}}", "", "train.objective: `documents: apart` does not support the mixer mamba2"),
        (
            "{gelu: {block.ffn: gelu}}",
            "{source: mqar}",
            "mqar defines its own examples: only next_token applies, with documents joined",
        ),
    ],
    ids=["mixer", "task"],
)
def test_a_study_that_cannot_keep_documents_apart_is_refused(arms: str, data: str, why: str, tmp_path: Path) -> None:
    path = toy_study(tmp_path, arms)
    sets = [
        "train.context=128",
        "train.objective={kind: next_token, documents: apart}",
        *([f"data={data}"] if data else []),
    ]
    with pytest.raises(StudyError) as raised:
        make_plan(load_study(path, "cpu", sets))
    assert why in str(raised.value)


def test_the_page_says_that_documents_were_apart(tmp_path: Path) -> None:
    path = toy_study(tmp_path, "{gelu: {block.ffn: gelu}}", steps=2)
    path.write_text(path.read_text().replace("train: {", "train: {objective: {kind: next_token, documents: apart}, "))
    summary = run_toy(path, Store(tmp_path / "runs"), [0])
    assert summary.study.objective == StudyObjective(kind="next_token (documents apart)", counts="every token")


def test_all_are_tried() -> None:
    assert sorted(objective.kind for objective, _ in KINDS) == list(variants("ablate.training.objectives"))


@every_kind
@pytest.mark.parametrize("context", [4, 19, 64])
def test_the_same_draw_asks_the_same_of_legal_tokens(objective: Objective, edits: object, context: int) -> None:
    windows = windows_of(5, context)
    one, again, other = (batch_of(objective, windows, seed) for seed in (3, 3, 4))
    assert torch.equal(one.tokens, again.tokens) and torch.equal(one.targets, again.targets)
    assert one.tokens.shape == other.tokens.shape and one.targets.shape == one.tokens.shape
    top = TEXT + objective.extra_tokens(context)
    for tokens in (one.tokens, one.targets[one.targets != IGNORED], *one.given.values()):
        assert int(tokens.min()) >= 0 and int(tokens.max()) < max(top, context + 2)


@every_kind
def test_places_say_which_token_of_the_window_a_target_is(objective: Objective, edits: object) -> None:
    windows = windows_of(4, 30)
    batch = batch_of(objective, windows)
    sizes = 1 + windows % 3
    expected = 0
    for row in range(4):
        for i, target in enumerate(batch.targets[row].tolist()):
            place = i + 1 if batch.places is None else int(batch.places[row, i])
            if target in (IGNORED,) or target >= TEXT:
                assert target == IGNORED or place == -1
            else:
                assert windows[row, place] == target
                expected += int(sizes[row, place])
    assert batch.sizes_of(sizes).sum() == expected


def test_masked_tokens_are_drawn_as_bert_draws_them() -> None:
    windows = windows_of(400, 100)
    text, batch = torch.from_numpy(windows[:, 1:]), batch_of(Masked(), windows)
    asked = batch.targets != IGNORED
    assert (asked.sum(dim=1) == 15).all()
    assert torch.equal(batch.targets[asked], text[asked]) and torch.equal(batch.tokens[~asked], text[~asked])
    masked, kept = batch.tokens[asked] == TEXT, batch.tokens[asked] == text[asked]
    count = 400 * 15
    for share, expected in ((masked, 0.8), (kept, 0.1 + 0.1 / TEXT), (~masked & ~kept, 0.1 * (1 - 1 / TEXT))):
        assert abs(share.float().mean().item() - expected) < 4 * math.sqrt(expected * (1 - expected) / count)
    spread = asked.float().mean(dim=0)
    assert (spread - 0.15).abs().max() < 5 * math.sqrt(0.15 * 0.85 / 400)


@pytest.mark.parametrize("context", [5, 19, 100])
def test_span_corruption_can_be_undone(context: int) -> None:
    objective = SpanCorruption()
    windows = windows_of(6, context)
    batch = batch_of(objective, windows)
    dropped, spans = objective.sizes(context)
    assert (batch.given["encoder_tokens"].shape[1], batch.targets.shape[1]) == objective.lengths(context)
    for row, text in enumerate(windows[:, 1:].tolist()):
        targets = batch.targets[row].tolist()
        assert batch.tokens[row].tolist() == [TEXT, *targets[:-1]]
        written: dict[int, list[int]] = {}
        for token in targets:
            if token > TEXT:
                written[token] = []
            else:
                written[list(written)[-1]].append(token)
        assert list(written) == [TEXT + 1 + i for i in range(spans + 1)]
        assert sum(map(len, written.values())) == dropped and written[TEXT + 1 + spans] == []
        read = batch.given["encoder_tokens"][row].tolist()
        assert [token for part in read for token in (written[part] if part > TEXT else [part])] == text


def test_a_prefix_is_not_asked_for() -> None:
    windows = windows_of(300, 12)
    batch = batch_of(Prefix(), windows)
    lengths = batch.given["prefix"]
    assert sorted(set(lengths.tolist())) == list(range(1, 13))
    assert torch.equal(batch.tokens, torch.from_numpy(windows[:, :-1]))
    for row, length in enumerate(lengths.tolist()):
        expected = [IGNORED] * (length - 1) + windows[row, length:].tolist()
        assert batch.targets[row].tolist() == expected


def test_blanks_are_filled_at_their_places() -> None:
    objective, windows = BlankInfilling(), windows_of(6, 50)
    batch = batch_of(objective, windows)
    dropped, spans = objective.sizes(50)
    first, second = objective.lengths(50)
    mask, start, end = TEXT, TEXT + 1, TEXT + 2
    orders = set()
    for row, text in enumerate(windows[:, 1:].tolist()):
        tokens, targets = batch.tokens[row].tolist(), batch.targets[row].tolist()
        places, blocks = batch.given["places"][row].tolist(), batch.given["block_places"][row].tolist()
        assert int(batch.given["prefix"][row]) == first and len(tokens) == first + second
        assert targets[:first] == [IGNORED] * first
        assert places[:first] == list(range(first)) and blocks[:first] == [0] * first
        filled: dict[int, list[int]] = {}
        for i in range(first, first + second):
            if tokens[i] == start:
                filled[places[i]], number = [], 0
            number += 1
            assert blocks[i] == number and tokens[places[i]] == mask
            if targets[i] != end:
                filled[places[i]].append(targets[i])
                assert tokens[i + 1] == targets[i]
        orders.add(tuple(sorted(filled, key=list(filled).index)) == tuple(sorted(filled)))
        assert len(filled) == spans and sum(map(len, filled.values())) == dropped
        told = [token for i, part in enumerate(tokens[:first]) for token in (filled[i] if part == mask else [part])]
        assert told == text
    assert False in orders  # the order of the spans is drawn


@every_kind
def test_declared_flops_are_those_of_a_batch(objective: Objective, edits: dict[str, object]) -> None:
    """Per token of text, with whole score matrices, which is all that a counter sees."""
    context = 24
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=TEXT + objective.extra_tokens(context), **edits)
    model, batch = zoo.build(spec).train(), batch_of(objective, windows_of(2, context))
    with zoo.attention_backend("plain"), FlopCounterMode(display=False) as counter:
        model.loss(batch.tokens, batch.targets, **batch.given)[0].backward()
    declared = objective.cost(spec, context)
    assert counter.get_total_flops() / (2 * context) == pytest.approx(declared.flops_per_token_square, rel=1e-9)
    assert declared.params == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("objective", [Prefix(), BlankInfilling()], ids=lambda objective: objective.kind)
def test_flops_count_the_scores_that_a_prefix_shows(objective: Prefix | BlankInfilling) -> None:
    """Against counting the pairs of tokens in the masks of many batches."""
    context = 20
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=TEXT + 3, visible="prefix")
    model, heads, head_dim = zoo.build(spec), *spec.layers[0].mixer.sizes()[::2]
    pairs, rows = 0, 500
    batch = batch_of(objective, windows_of(rows, context))
    length = batch.tokens.shape[1]
    for prefix in batch.given["prefix"].tolist():
        pairs += sum(max(t + 1, prefix) for t in range(length))
    part = zoo.cost(spec, context=length)
    causal = sum(t + 1 for t in range(length))
    extra = 3 * spec.n_layers * 4 * heads * head_dim * (pairs / rows - causal) / context
    declared = objective.cost(spec, context).flops_per_token - part.flops_per_token * length / context
    assert declared == pytest.approx(extra, rel=1e-9 if objective.kind == "blank_infilling" else 0.1)
    assert model.spec is spec


def test_the_default_objective_is_not_in_a_runs_identity() -> None:
    assert "objective" not in TrainSpec().model_dump(mode="json")
    assert TrainSpec(objective="masked").model_dump(mode="json")["objective"] == Masked().model_dump(mode="json")


def test_a_masked_study_counts_what_it_predicts(tmp_path: Path) -> None:
    """From the file to the report, with the loss of the stored model summed again by hand."""
    path = toy_study(tmp_path, "{slow: {train.lr: 1e-3}}")
    path.write_text(
        path.read_text()
        .replace("n_layers: 1,", "n_layers: 1, visible: all,")
        .replace("lr: 1e-2,", "lr: 1e-2, objective: masked,")
    )
    store = Store(tmp_path / "runs")
    summary = run_toy(path, store, [0, 1])
    assert summary.study.per == "target"
    assert summary.study.objective == StudyObjective(kind="masked", counts=Masked.counts)
    assert "The loss is that of the objective masked, a mean over the tokens selected for prediction" in method(summary)
    run = plan_toy(path, [0, 1]).runs[0]
    result = store.read_result(run.digest)
    assert run.identity.model["vocab_size"] == 258
    assert result is not None and result.loss is not None and result.loss < math.log(257)
    assert result.bits_per_byte == pytest.approx(result.loss / math.log(2), rel=0.05)


REFUSED = {
    "base.visible=all": "next_token needs a causal model, but visible is all: set train.objective to masked",
    "base.encoder={n_layers: 1}": "the objective next_token has no input for an encoder",
    "train.objective=masked": "train.objective: the objective masked needs an encoder",
    "train.objective=span_corruption": "train.objective: the objective span_corruption needs a model with an encoder",
    "train.objective=blank_infilling": "train.objective: the objective blank_infilling needs a prefix LM",
    "train.objective={kind: masked, mask: 0.9, random: 0.2}": "random: mask + random must be at most 1, not 1.1",
    "arms.slow.train.objective=prefix": "losses of different objectives are not comparable",
}


@pytest.mark.parametrize("edit", REFUSED)
def test_what_an_objective_cannot_teach_is_refused(edit: str, tmp_path: Path) -> None:
    path = toy_study(tmp_path, "{slow: {train.lr: 1e-3}}")
    with pytest.raises(StudyError) as caught:
        load_study(path, "cpu", [edit])
    assert any(REFUSED[edit] in str(problem) for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("edits", "kind"),
    [
        (["base.visible=all", "train.objective=masked"], "is an encoder"),
        (["base.encoder={n_layers: 1}", "train.objective=span_corruption"], "has an encoder"),
    ],
)
def test_what_reads_on_is_not_asked_of_encoders(edits: list[str], kind: str, tmp_path: Path) -> None:
    study = load_study(toy_study(tmp_path, "{slow: {train.lr: 1e-3}}"), "cpu", [*edits, "evals={}"])
    with pytest.raises(StudyError, match=f"evals: needs causal models, but arm base {kind}: set evals to null"):
        make_plan(study)


def test_an_encoder_has_no_cache_to_compare(tmp_path: Path) -> None:
    edits = ["base.visible=all", "train.objective=masked", "measure={caches: [int8]}"]
    with pytest.raises(StudyError, match=r"measure.caches: arm base: an encoder has no KV cache"):
        make_plan(load_study(toy_study(tmp_path, "{slow: {train.lr: 1e-3}}"), "cpu", edits))


@pytest.mark.parametrize(
    ("edits", "sentence", "kv"),
    [
        ([], None, 128),
        (["base.visible=all", "train.objective=masked"], "Encoders generate no tokens", None),
        (["base.encoder={n_layers: 1}", "train.objective=span_corruption"], "the context is the encoder's tokens", 256),
        (["base.visible=prefix", "train.objective=prefix"], "the context is the prefix", 128),
    ],
)
def test_a_study_says_what_a_context_is(edits: list[str], sentence: str | None, kv: int | None, tmp_path: Path) -> None:
    plan = make_plan(load_study(toy_study(tmp_path, "{slow: {train.lr: 1e-3}}"), "cpu", edits))
    document = study_document(CampaignOutcome((RungStudy(plan),)))
    assert [sentence in each for each in document.conventions] == [True] * (sentence is not None)
    assert [(arm.kv_bytes_per_token, bool(arm.cache_bytes)) for arm in document.arms] == [(kv, kv is not None)] * 2


def test_what_is_held_out_is_asked_the_same_whatever_the_batch(tmp_path: Path) -> None:
    """Arms may differ in batch and seed."""
    asked = []
    for batch, seed in ((2, 0), (4, 1)):
        train = TrainSpec(context=12, batch=batch, objective="masked").model_dump(mode="json")
        model = zoo.load("small", d_model=16, n_layers=1, vocab_size=17, visible="all").dump()
        identity = run_of(f"{seed}", seed=seed, steps=1, train=train, model=model)
        session = Session(Store(tmp_path / "runs"), identity, TinyCorpus(), enforce("cpu", "float32", 1))
        held_out = session.reader.held_out("test")
        columns = zip(*((b.tokens, b.targets) for b in held_out.batches), strict=True)
        asked.append((*map(torch.cat, columns), held_out.n_bytes))
    assert torch.equal(asked[0][0], asked[1][0]) and torch.equal(asked[0][1], asked[1][1])
    assert asked[0][2] == asked[1][2] == 6 * 2
