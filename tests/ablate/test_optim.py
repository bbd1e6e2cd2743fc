"""Weight decay and learning rates by a parameter's role, and what a training step does with them."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

import zoo
from ablate.training.batch import Batch
from ablate.training.loop import Learner, train
from ablate.training.optim import build_optimizer, trained
from ablate.training.spec import TrainSpec

SMALL = {"vocab_size": 32, "d_model": 16, "n_layers": 2}
BY_ROLE = {"embedding": 0.0, "input": 0.1, "output": 0.2, "head": 0.3, "gain": 0.4}


def small_model(**edits: object) -> nn.Module:
    return zoo.build(zoo.parse({**SMALL, **edits}))


def of(model: nn.Module, **settings: object) -> list:
    return trained(model, zoo.roles(model), TrainSpec.model_validate(settings), 16, 1)


def test_a_number_decays_matrices_and_not_gains():
    model = small_model(tie_embeddings=False)
    found = {id(each.parameter): each.weight_decay for each in of(model, weight_decay=0.3)}
    assert found == {id(p): 0.3 if p.dim() == 2 else 0.0 for p in model.parameters()}


def test_a_map_decays_by_role():
    model = small_model(tie_embeddings=False)
    found = {id(each.parameter): each.weight_decay for each in of(model, weight_decay=BY_ROLE)}
    block = model.blocks[0]
    chosen = (model.embedding, block.mixer.q, block.ffn.down, model.head, model.norm)
    assert [found[id(next(module.parameters()))] for module in chosen] == [0.0, 0.1, 0.2, 0.3, 0.4]


def test_a_tied_table_is_an_embedding_once():
    model = small_model(tie_embeddings=True)
    found = of(model, weight_decay=BY_ROLE)
    assert len(found) == len({id(each.parameter) for each in found})
    assert [each.weight_decay for each in found if each.parameter is model.embedding.weight] == [0.0]


def test_what_is_frozen_is_not_trained():
    model = small_model()
    model.embedding.weight.requires_grad_(False)
    assert all(each.role != "embedding" for each in of(model))


@pytest.mark.parametrize("kind", ["adamw", "lion", "muon", "schedule_free", "sgd", "soap"])
def test_every_parameter_is_in_one_group_with_its_settings(kind):
    model = small_model(tie_embeddings=False)
    spec = TrainSpec.model_validate({"schedule": "constant", "optimizer": kind, "weight_decay": BY_ROLE})
    optimizer = build_optimizer(model, zoo.roles(model), spec, 16, 1)
    found = []
    for group in optimizer.param_groups:
        decay = group.get("decay", group["weight_decay"])  # SGD's own is torch's L2, which is off
        found += [(id(parameter), decay) for parameter in group["params"]]
    assert len(found) == len(list(model.parameters()))
    assert dict(found) == {id(each.parameter): each.weight_decay for each in of(model, weight_decay=BY_ROLE)}


def test_a_number_and_the_map_that_it_stands_for_are_one_training():
    matrices = dict.fromkeys(("embedding", "input", "output", "head"), 0.3)
    a, b = (TrainSpec.model_validate({"weight_decay": given}) for given in (0.3, matrices))
    assert a.model_dump() == b.model_dump()


def test_betas_beside_the_optimizer_are_its_own():
    short = TrainSpec.model_validate({"optimizer": "lion", "betas": [0.8, 0.9]})
    long = TrainSpec.model_validate({"optimizer": {"kind": "lion", "betas": [0.8, 0.9]}})
    assert short == long == TrainSpec.model_validate(short.model_dump(mode="json"))
    assert short.optimizer.betas == (0.8, 0.9)


@pytest.mark.parametrize("value", [-1, True, "lots", float("inf"), {"embedding": 0.1}, None])
def test_no_other_weight_decay_is_taken(value):
    with pytest.raises(ValidationError):
        TrainSpec.model_validate({"weight_decay": value})


def test_one_step_follows_loshchilov_and_hutter(numerics):
    """θ₁ = θ₀ · (1 − lr·λ) − lr · m̂ / (√v̂ + ε); after one step m̂ = g and v̂ = g²."""
    layer = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    layer.weight.data = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    spec = TrainSpec.model_validate(
        {"lr": 0.1, "warmup": 0.0, "schedule": "constant", "weight_decay": 0.2, "grad_clip": None}
    )
    optimizer = build_optimizer(layer, {"weight": "input"}, spec, 2, 1)
    gradient = torch.tensor([[3.0, -4.0]], dtype=torch.float64)

    def loss(_tokens, _targets):
        value = (layer.weight * gradient).sum()
        return value, value

    learner = Learner(loss, optimizer, spec, numerics)
    ((step,),) = train(learner, lambda _: Batch.next_token(torch.zeros(1, 3)), 1)
    expected = torch.tensor([[0.5 * 0.98 - 0.1, -1.0 * 0.98 + 0.1]], dtype=torch.float64)
    torch.testing.assert_close(layer.weight.data, expected, atol=1e-8, rtol=0)
    assert step.grad_norm == 5.0
    assert step.loss == 0.5 * 3 + 4


def test_clipping_bounds_the_gradient_and_reports_the_norm_before(numerics):
    layer = nn.Linear(2, 1, bias=False)
    seen = {}
    spec = TrainSpec(warmup=0.0, grad_clip=0.5)
    optimizer = build_optimizer(layer, {"weight": "input"}, spec, 2, 1)
    optimizer.register_step_pre_hook(lambda *_: seen.update(norm=layer.weight.grad.norm().item()))

    def loss(_tokens, _targets):
        value = (layer.weight * torch.tensor([[3.0, 4.0]])).sum()
        return value, value

    learner = Learner(loss, optimizer, spec, numerics)
    ((step,),) = train(learner, lambda _: Batch.next_token(torch.zeros(1, 3)), 1)
    assert abs(step.grad_norm - 5.0) < 1e-6
    assert abs(seen["norm"] - 0.5) < 1e-5
