"""nGPT against a plain version written from its paper, arXiv:2410.01131, and its matrices of unit vectors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from ablate.machine.numerics import enforce
from ablate.training.batch import Batch
from ablate.training.loop import Learner
from ablate.training.optim import build_optimizer
from ablate.training.spec import TrainSpec
from zoo.conformance.combinations import random_model, random_tokens
from zoo.init import Embedding, Linear, project

D, HEADS, WIDTH = 24, 4, 20


def small(**edits: object) -> zoo.ModelSpec:
    sizes = {"vocab_size": 61, "d_model": D, "n_layers": 2, "block.mixer.heads": HEADS, "block.ffn.d_ff": WIDTH}
    return zoo.load("ngpt", **sizes, **edits)


def unit(x: Tensor) -> Tensor:
    return x / x.pow(2).sum(-1, keepdim=True).sqrt()


def turned(x: Tensor, place: int) -> Tensor:
    """RoPE of one head's features (d,)."""
    half = x.shape[-1] // 2
    angles = place * 10_000.0 ** (-2 * torch.arange(half) / x.shape[-1])
    a, b = x[:half], x[half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()))


@torch.no_grad()
@pytest.mark.parametrize("absolute", [False, True])
def test_it_is_the_papers(absolute: bool) -> None:
    """One token and one head after the other. s_qk² is the product of the gains of queries and keys. Some α are
    negative: steps are α, or |α| as in the authors' code."""
    spec = small(**{"block.norm_placement.absolute": absolute})
    model, tokens = random_model(spec), random_tokens(spec, 1, 6)
    for block in model.blocks:
        for residual in (block.mixer_residual, block.ffn_residual):
            residual.alpha[::3] *= -1
    project(model)
    d, x = D // HEADS, unit(model.embedding.weight[tokens[0]])
    for block in model.blocks:
        mixer, ffn = block.mixer, block.ffn
        alphas = [residual.alpha for residual in (block.mixer_residual, block.ffn_residual)]
        rates = [0.05 * math.sqrt(D) * (alpha.abs() if absolute else alpha) for alpha in alphas]
        rows = []
        for t in range(6):
            heads = []
            for h in range(HEADS):
                own = slice(d * h, d * h + d)
                s_q, s_k = mixer.q_norm.norms[h].gain, mixer.k_norm.norms[h].gain
                q = unit(turned(mixer.q.weight[own] @ x[t], t)) * s_q
                keys = [unit(turned(mixer.k.weight[own] @ x[j], j)) * s_k for j in range(t + 1)]
                weights = torch.stack([math.sqrt(d) * (q @ k) for k in keys]).softmax(0)
                heads.append(sum(w * (mixer.v.weight[own] @ x[j]) for j, w in enumerate(weights)))
            rows.append(mixer.o.weight @ torch.cat(heads))
        x = unit(x + rates[0] * (unit(torch.stack(rows)) - x))
        u, v = x @ ffn.up.weight.T * ffn.scale_up, x @ ffn.gate.weight.T * ffn.scale_gate * math.sqrt(D)
        x = unit(x + rates[1] * (unit((u * F.silu(v)) @ ffn.down.weight.T) - x))
    expected = x @ model.head.weight.T * model.logit_gain * math.sqrt(D)
    torch.testing.assert_close(model(tokens)[0], expected, rtol=1e-4, atol=1e-5)


def lengths(model: zoo.Decoder) -> list[Tensor]:
    """Norms of the vectors that must have length 1: those of D features, whichever way the matrix lies."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, Linear | Embedding):
            found.append(module.weight.norm(dim=0 if name.endswith((".o", ".down")) else 1))
    return found


def test_matrices_are_made_of_unit_vectors_before_and_after_every_step() -> None:
    model = zoo.build(small())
    assert all(torch.allclose(length, torch.ones_like(length)) for length in lengths(model))
    before = {name: p.clone() for name, p in model.named_parameters()}
    spec = TrainSpec(lr=0.1, warmup=0.0, grad_clip=None)
    optimizer = build_optimizer(model, zoo.roles(model), spec, D, model.spec.n_layers)
    tokens = random_tokens(model.spec, 2, 10)
    learner = Learner(
        model.loss, optimizer, spec, enforce("cpu", "float32"), after_update=lambda: zoo.after_update(model)
    )
    for step in (1, 2):
        learner.learn(step, 0.1, Batch.next_token(tokens))
        assert all(torch.allclose(length, torch.ones_like(length)) for length in lengths(model))
    for name, parameter in model.named_parameters():
        assert not torch.equal(parameter, before[name]), name


def test_it_starts_where_it_knows_nothing() -> None:
    model, tokens = zoo.build(small()), random_tokens(small(), 8, 20)
    with torch.no_grad():
        nats = model.nats(tokens[:, :-1], tokens[:, 1:]).mean().item()
    assert nats == pytest.approx(math.log(61), abs=0.1)
