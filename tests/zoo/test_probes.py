"""Values that layers show: against slow versions, without a trace in the forward pass, and without work when nobody
looks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import zoo
from zoo.attend import attend, attention_backend
from zoo.attending import plain
from zoo.attending import plain as shown_scores
from zoo.attending.visible import Scoring, Visible
from zoo.conformance.combinations import random_model, random_tokens
from zoo.ffns._moe import MoE

Edits = dict[str, Any]
MIXERS: list[Edits] = [
    {},
    {"kv_heads": 2, "window": 3},
    {"softcap": 2.0, "sinks": True},
    {"position": "alibi"},
    {"kind": "cosine"},
    {"kind": "differential", "heads": 2},
    {"kind": "mla"},
]


def model_of(**edits: Any) -> zoo.Decoder:
    return random_model(zoo.load("small", d_model=24, n_layers=2, vocab_size=31, **edits))


def index(length: int) -> Tensor:
    return torch.arange(length)


def slow_scores(q: Tensor, k: Tensor, scoring: Scoring, window: int | None) -> list[list[list[float]]]:
    """Scores of the visible keys for each head and query, one number at a time. q: (H, T, d), k: (K, T, d)."""
    heads, length, _ = q.shape
    out = []
    for h in range(heads):
        group = h // (heads // k.shape[0])
        rows = []
        for t in range(length):
            row = []
            for s in range(t + 1):
                if window is not None and t - s >= window:
                    continue
                z = float(q[h, t] @ k[group, s]) * scoring.scale
                if scoring.bias is not None:
                    z += float(scoring.bias.expand(heads, length, length)[h, t, s])
                row.append(scoring.softcap * math.tanh(z / scoring.softcap) if scoring.softcap else z)
            rows.append(row)
        out.append(rows)
    return out


def slow_entropy(row: list[float], sink: float | None) -> float:
    powers = [math.exp(z) for z in (row if sink is None else [*row, sink])]
    return -sum(p / sum(powers) * math.log(p / sum(powers)) for p in powers)


SCORINGS = [
    (Scoring(0.4), None),
    (Scoring(0.4), 3),
    (Scoring(1.0, softcap=1.5), None),
    (Scoring(0.4, bias=torch.randn(4, 7, 7, generator=torch.Generator().manual_seed(2))), 5),
    (Scoring(0.4, bias=torch.randn(4, 1, 7, generator=torch.Generator().manual_seed(3))), None),
    (Scoring(0.4, sinks=torch.tensor([-1.0, 0.0, 1.0, 5.0])), None),
]


@pytest.mark.parametrize("at_once", [1, 10**6])
@pytest.mark.parametrize(("scoring", "window"), SCORINGS)
def test_largest_scores_and_entropies_are_those_of_a_loop(
    scoring: Scoring, window: int | None, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_scores, "SCORES_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(1, 4, 7, 6, generator=generator), torch.randn(1, 2, 7, 6, generator=generator)
    visible = Visible(index(7), index(7), window)
    scores = slow_scores(q[0], k[0], scoring, window)
    expected = torch.tensor([max(z for row in rows for z in row) for rows in scores])
    torch.testing.assert_close(shown_scores.largest_scores(q, k, visible, scoring), expected)
    sinks = [None] * 4 if scoring.sinks is None else scoring.sinks.tolist()
    means = [sum(slow_entropy(row, sink) for row in rows) / 7 for rows, sink in zip(scores, sinks, strict=True)]
    torch.testing.assert_close(shown_scores.entropies(q, k, visible, scoring), torch.tensor(means))


def test_a_head_that_attends_evenly_has_the_entropy_of_its_keys() -> None:
    q = torch.zeros(2, 1, 5, 4)
    expected = sum(math.log(n) for n in (1, 2, 3, 3, 3)) / 5
    found = shown_scores.entropies(q, q, Visible(index(5), index(5), 3), Scoring(1.0))
    torch.testing.assert_close(found, torch.tensor([expected]))


@pytest.mark.parametrize("mixer", MIXERS, ids=str)
def test_every_mixer_shows_its_scores_and_computes_the_same_bits(mixer: Edits) -> None:
    model = model_of(**{"block.mixer": mixer})
    tokens = random_tokens(model.spec, 2, 9)
    plain = model(tokens)
    with zoo.taps(model) as seen:
        assert torch.equal(model(tokens), plain)
    for layer in range(2):
        (entropy,), (largest,) = (seen[f"blocks.{layer}.mixer.{name}"] for name in ("entropy", "max_logit"))
        assert entropy.shape == largest.shape
        assert (entropy > 0).all()
        assert (entropy < math.log(10)).all()
        assert largest.isfinite().all()


@pytest.mark.parametrize("backend", ["plain", "fused", "band"])
def test_what_is_shown_does_not_depend_on_the_backend(backend: str) -> None:
    q = torch.randn(2, 4, 12, 6, generator=torch.Generator().manual_seed(0))
    places, shown = index(12), {}
    visible = Visible(places, places, 3)
    scoring = Scoring(0.4, tap=lambda name, show: shown.update({name: show()}))
    with attention_backend(backend):
        attend(q, q, q, visible, scoring)
    assert shown.keys() == {"mixer.max_logit", "mixer.entropy", "mixer.weights"}
    torch.testing.assert_close(shown["mixer.weights"] @ q, plain.attend(q, q, q, visible, Scoring(0.4)))
    torch.testing.assert_close(shown["mixer.entropy"], shown_scores.entropies(q, q, visible, Scoring(0.4)))


def test_the_stream_is_what_leaves_each_block() -> None:
    model = model_of()
    left: list[Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, output: left.append(output))
    with zoo.taps(model, "*.stream") as seen:
        model(random_tokens(model.spec, 2, 9))
    assert list(seen) == ["blocks.0.stream", "blocks.1.stream"]
    for (shown,), output in zip(seen.values(), left, strict=True):
        assert torch.equal(shown, output)
        assert not shown.requires_grad


@pytest.mark.parametrize("edits", [{}, {"final_softcap": 3.0, "logit_scale": 0.5, "tie_embeddings": False}], ids=str)
@pytest.mark.parametrize("at_once", [31, 10**6])
def test_log_z_is_that_of_the_logits(edits: Edits, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.loss.LOGITS_AT_ONCE", at_once)
    model = model_of(**edits)
    tokens = random_tokens(model.spec, 2, 9)
    with zoo.taps(model, "log_z") as seen:
        logits = model(tokens)
        model.loss(tokens[:, :-1], tokens[:, 1:])
    forward, training = seen["log_z"]
    expected = torch.log(torch.exp(logits.double()).sum(-1)).float()
    torch.testing.assert_close(forward, expected)
    torch.testing.assert_close(training, expected[:, :-1])


def test_only_what_is_asked_for_is_recorded_and_computed() -> None:
    model = model_of(**{"block.ffn": {"kind": "topk_moe", "d_ff": 8}})
    tokens = random_tokens(model.spec, 1, 9)
    flops = {}
    for patterns in (None, ("*.stream", "*.load"), ("*.entropy",), ()):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            if patterns is None:
                model(tokens)
            else:
                with zoo.taps(model, *patterns) as seen:
                    model(tokens)
        flops[patterns] = counter.get_total_flops()
    assert flops[None] == flops["*.stream", "*.load"] < flops["*.entropy",] < flops[()]
    assert {name.split(".", 2)[-1] for name in seen} == {
        "stream",
        "ffn.load",
        "mixer.entropy",
        "mixer.max_logit",
        "mixer.weights",
        "log_z",
    }
    assert model.recorder is None


def test_nobody_listening_costs_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of the functions that make what is shown is called."""
    for name in ("attend.largest_scores", "attend.entropies", "attend.weights_of", "model.log_z"):
        monkeypatch.setattr(f"zoo.{name}", lambda *_: pytest.fail("computed though nobody looked"))
    model = model_of(**{"block.ffn": {"kind": "topk_moe", "d_ff": 8}})
    assert issubclass(type(model.spec.block.ffn), MoE)
    tokens = random_tokens(model.spec, 1, 9)
    model(tokens)
    model.train().loss(tokens[:, :-1], tokens[:, 1:])


def test_listening_again_after_compiling_leaves_the_compiled_graph_alone() -> None:
    model = model_of().train()
    tokens = random_tokens(model.spec, 2, 17)
    torch.compiler.reset()
    compiled = torch.compile(model.loss, fullgraph=True, backend="eager")
    compiled(tokens[:, :-1], tokens[:, 1:])
    with zoo.taps(model, "*.entropy") as seen, torch.no_grad():
        model.hidden(tokens)
    assert len(seen) == 2
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(tokens[:, :-1], tokens[:, 1:])
