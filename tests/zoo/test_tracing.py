"""What a model computes as it would on a GPU, on a CPU: it is the same, in fewer and larger kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from zoo.kernels.compiling import Trace, traced_for
from zoo.model import aligned_product
from zoo.norms.rmsnorm import RMSNorm


def on_gpu(compiled: bool = False) -> Trace:
    """Kernels that give their own numbers."""

    def attention(q: Tensor, k: Tensor, v: Tensor, share: float) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=share < 1, enable_gqa=True)

    def norm(x: Tensor, gain: Tensor | None) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], gain, 1e-6)

    return Trace("cuda", compiled, attention, norm)


@pytest.mark.parametrize("settings", [{}, {"unit_offset": True}, {"gain": False}])
def test_a_fused_norm_is_the_norm(settings: dict[str, bool]) -> None:
    layer = RMSNorm(**settings).build(24)
    for parameter in layer.parameters():
        parameter.data.normal_()
    x = 3 * torch.randn(5, 24)
    with traced_for(on_gpu()):
        fused = layer(x)
    torch.testing.assert_close(fused, layer(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [17, 64, 65])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_padded_table_has_the_same_logits_and_gradients(size: int, with_bias: bool) -> None:
    weight, hidden = torch.randn(size, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    bias = torch.randn(size) if with_bias else None
    found = []
    for trace in (None, on_gpu()):
        with torch.autocast("cpu", torch.bfloat16):
            if trace is None:
                logits = aligned_product(hidden, weight, bias)
            else:
                with traced_for(trace):
                    logits = aligned_product(hidden, weight, bias)
        assert logits.shape == (3, size)
        gradients = torch.autograd.grad(logits.float().square().sum(), (weight, hidden))
        found.append((logits, *gradients))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_has_the_same_loss_as_a_gpu_computes_it(compiled: bool) -> None:
    """Pieces of the logits, norms, kernels of attention and the loss as torch.compile is given it."""
    spec = zoo.load("small", d_model=32, n_layers=2, vocab_size=33, **{"block.mixer.heads": 2})
    model, tokens = zoo.build(spec, seed=0).train(), torch.randint(33, (2, 20))
    loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
    with traced_for(on_gpu(compiled)):
        there, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
    torch.testing.assert_close(there, loss, rtol=1e-5, atol=1e-5)
    assert sum(p.numel() for p in model.parameters()) == zoo.cost(spec).params
