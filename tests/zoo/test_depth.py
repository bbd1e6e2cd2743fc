"""Effects of depth on gradients and updates before any training: the laws that placements of the norm are chosen
for."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.conformance.combinations import random_tokens

LENGTH = 32
PLAIN = {"vocab_size": 64, "init.output": "plain", "block.ffn": "relu", "block.norm": "layernorm"}


def model_of(placement: str, n_layers: int, d_model: int, seed: int = 0) -> zoo.Decoder:
    """With a head of its own that is not zero, so that the loss does not depend on what the tokens are."""
    edits = {"d_model": d_model, "n_layers": n_layers, "block.norm_placement": placement, "tie_embeddings": False}
    model = zoo.build(zoo.load("small", **PLAIN, **edits), seed)
    torch.nn.init.normal_(model.head.weight, std=d_model**-0.5, generator=torch.Generator().manual_seed(seed))
    return model


def last_ffn_gradient(placement: str, n_layers: int, seed: int) -> float:
    """Norm of the loss gradient of one token, which is what the theorem is about, over the last FFN's last matrix.

    Means over eight texts. A loss over many tokens sums gradients that depth makes more and more alike.
    """
    model = model_of(placement, n_layers, 64, seed)
    tokens = random_tokens(model.spec, 8, LENGTH + 1, seed)
    logits = model(tokens[:, :-1])[:, -1]
    losses = F.cross_entropy(logits, tokens[:, -1], reduction="none")
    weight = model.blocks[-1].ffn.down.weight
    norms = [torch.autograd.grad(loss, weight, retain_graph=True)[0].norm() for loss in losses]
    return torch.stack(norms).mean().item()


def slope(points: dict[int, float]) -> float:
    """Least-squares slope of log y against log x."""
    x = torch.tensor([math.log(k) for k in points])
    y = torch.tensor([math.log(v) for v in points.values()])
    x, y = x - x.mean(), y - y.mean()
    return ((x * y).sum() / (x * x).sum()).item()


@pytest.mark.parametrize(("placement", "expected"), [("post", 0.0), ("pre", -0.5)])
def test_gradient_of_the_last_ffn_follows_depth(placement: str, expected: float) -> None:
    """Xiong et al. 2020, arXiv:2002.04745, theorem 1: O(1) with post-norm, O(1/√L) with pre-norm."""
    depths = (4, 8, 16, 32)
    norms = {n: sum(last_ffn_gradient(placement, n, seed) for seed in range(3)) / 3 for n in depths}
    assert slope(norms) == pytest.approx(expected, abs=0.1)


def update(placement: str, n_layers: int, lr: float = 1e-2) -> float:
    """Root mean square change of the last hidden state by one step of gradient descent on the blocks' matrices."""
    model = model_of(placement, n_layers, 32)
    tokens = random_tokens(model.spec, 8, LENGTH + 1)
    before = model.hidden(tokens[:, :-1]).detach()
    matrices = [p for name, p in model.named_parameters() if name.startswith("blocks.") and p.dim() == 2]
    gradients = torch.autograd.grad(model.loss(tokens[:, :-1], tokens[:, 1:])[0], matrices)
    with torch.no_grad():
        for matrix, gradient in zip(matrices, gradients, strict=True):
            matrix.sub_(lr * gradient)
        return (model.hidden(tokens[:, :-1]) - before).square().mean().sqrt().item()


def test_deepnorm_bounds_the_update_of_a_deep_stack() -> None:
    """Wang et al. 2022, arXiv:2203.00555, theorem 3: with α and β one step changes the model's output by an amount that
    does not grow with depth; with post-norm alone it grows and grows."""
    depths = (6, 12, 24, 48)
    deepnorm = [update("deepnorm", depth) for depth in depths]
    post = [update("post", depth) for depth in depths]
    assert max(deepnorm) < 1.5 * min(deepnorm), deepnorm
    assert post[-1] > 3 * post[0] and min(post) > 20 * max(deepnorm), post
