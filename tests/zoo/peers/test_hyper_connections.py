"""Hyper-connections against the package of that name, with our weights in its layers, in whole models.

Its manifold-constrained ones are not compared: they weigh each stream by that stream alone, where the paper
(arXiv:2512.24880, eq. 7 and 8) and ours read all streams of a token at once.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hyper_connections import HyperConnections
from torch import Tensor
from torch.func import functional_call

import zoo
from tests.zoo.peers.test_fla_attention import logits_and_gradients
from zoo.conformance.combinations import random_model, random_tokens
from zoo.residuals import Branch
from zoo.residuals.hyper_connections import HyperLayer

D = 16


def through_theirs(layer: Any, x: Tensor, branch: Branch) -> Tensor:
    """x: (B, T, n, D) → the same, through their layer, in which the streams of a row follow one another."""
    theirs = HyperConnections(x.shape[2], dim=D, layer_index=0, branch=lambda h: branch(layer.norm_in(h)))
    state = {"static_alpha": layer.read, "static_beta": layer.write}
    if layer.asked is not None:
        state |= {
            "norm.gamma": layer.asked.norm.gain - 1,
            "dynamic_alpha_fn": layer.asked.weight[:-1].T,
            "dynamic_beta_fn": layer.asked.weight[-1],
            "dynamic_alpha_scale": layer.asked.scale[0],
            "dynamic_beta_scale": layer.asked.scale[1],
        }
    streams: Tensor = functional_call(theirs.double(), state, (x.transpose(1, 2).flatten(0, 1),))
    return streams.unflatten(0, (len(x), -1)).transpose(1, 2)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("dynamic", [True, False])
def test_hyper_connections_are_the_package_s(n: int, dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits and all gradients."""
    residual = {"kind": "hyper_connections", "n": n, "dynamic": dynamic}
    settings = {"block.norm_placement": residual, "block.norm": {"kind": "rmsnorm", "eps": 1e-20}}
    spec = zoo.load("small", d_model=D, n_layers=2, **settings)
    model, tokens, calls = random_model(spec).double(), random_tokens(spec, 2, 7), []
    ours = logits_and_gradients(model, tokens)
    monkeypatch.setattr(HyperLayer, "forward", lambda *given: calls.append(given) or through_theirs(*given))
    for found, expected in zip(logits_and_gradients(model, tokens), ours, strict=True):
        # Our norms are computed in float32.
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=3e-5 * expected.abs().max().item())
    assert len(calls) == 4
