"""Linear mixers with their scan replaced by fla-core's plain reference of it: outputs and all gradients are the same.

The whole layer runs, so that the reference is given the queries, keys, values, decays and strengths that ours computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.zoo.peers.reference import by_token, reference
from tests.zoo.slow import layer_of, random_stream
from zoo.mixers import Mixer
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.mixers.gla import GatedLinearAttention
from zoo.mixers.hgrn2 import HGRN2
from zoo.mixers.kda import KimiDeltaAttention
from zoo.mixers.lightning import LightningAttention
from zoo.mixers.linear_attention import LinearAttention
from zoo.mixers.mamba2 import Mamba2
from zoo.mixers.mamba3 import Mamba3
from zoo.mixers.mlstm import MLSTM
from zoo.mixers.retention import Retention
from zoo.mixers.rg_lru import RGLRU
from zoo.mixers.rwkv6 import RWKV6
from zoo.mixers.rwkv7 import RWKV7
from zoo.mixers.titans import Titans
from zoo.mixers.ttt import NOW, TTT
from zoo.site import ForwardPass

D, T = 12, 24
CHUNK = 8
"""Three chunks of our scans."""
Scan = Callable[..., Tensor]


def of_every_head(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys that heads share, (B, G, T, n), once for each head of the values, (B, H, T, p)."""
    return q.repeat_interleave(v.shape[1] // q.shape[1], 1), k.repeat_interleave(v.shape[1] // k.shape[1], 1)


def gla(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, *_: Any) -> Tensor:
    out, _ = reference("gla/naive", "naive_recurrent_gla")(*map(by_token, (q * q.shape[-1] ** 0.5, k, v, decay)))
    return by_token(out)


def simple_gla(name: str, **settings: int) -> Scan:
    def scan(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, *_: Any) -> Tensor:
        parts = (*of_every_head(q, k, v), v, decay.expand(v.shape[:3]))
        out, _ = reference("simple_gla/naive", name)(*map(by_token, parts), scale=1.0, **settings)
        return by_token(out)

    return scan


def retention(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
    """With its own decays."""
    out: Tensor = reference("retention/naive", "naive_retention")(q * q.shape[-1] ** 0.5, k, v)
    return out


def linear_attention(name: str) -> Scan:
    """Already divided by the sum of weights, for which 1 is returned."""

    def scan(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
        found = reference("linear_attn/naive", name)(*map(by_token, (q, k, v[..., :-1])), normalize=True)
        out = found if isinstance(found, Tensor) else found[0]
        return torch.cat((by_token(out), torch.ones_like(v[..., :1])), dim=-1)

    return scan


def gated_delta_rule(name: str) -> Scan:
    def scan(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, *_: Any) -> Tensor:
        given = {"q": q, "k": k, "v": v, "g": decay, "beta": strength}
        given |= dict(zip("qk", of_every_head(q, k, v), strict=True))
        out, _ = reference("gated_delta_rule/naive", name)(**{key: by_token(x) for key, x in given.items()}, scale=1.0)
        return by_token(out)

    return scan


def delta_rule(q: Tensor, k: Tensor, v: Tensor, _decay: Tensor, strength: Tensor, *_: Any) -> Tensor:
    """Without decay."""
    q, k = of_every_head(q, k, v)
    out, _ = reference("delta_rule/naive", "delta_rule_recurrence")(q * q.shape[-1] ** 0.5, k, v, strength)
    return out


def gated_delta_product(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, *_: Any) -> Tensor:
    """k, v and strength: several rows per token."""
    parts = (*of_every_head(q, k, v), v, decay, strength)
    operator = reference("gated_delta_product/naive", "naive_recurrent_gated_delta_product")
    out, _ = operator(*map(by_token, parts), scale=1.0, num_householder=k.shape[2] // q.shape[2])
    return by_token(out)


def kda(name: str, **settings: int) -> Scan:
    def scan(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, *_: Any) -> Tensor:
        out, _ = reference("kda/naive", name)(*map(by_token, (q, k, v, decay, strength)), scale=1.0, **settings)
        return by_token(out)

    return scan


def dplr(q: Tensor, k: Tensor, v: Tensor, read: Tensor, erase: Tensor, decay: Tensor, *_: Any) -> Tensor:
    operator = reference("generalized_delta_rule/dplr/naive", "dplr_recurrence")
    out, _ = operator(q * q.shape[-1] ** 0.5, k, v, read, -erase, decay)
    return out


def momentum(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, momentum: Tensor, rate: Tensor, *_: Any) -> Tensor:
    """M_t = η M_{t−1} − θ k (v − Sᵀ k)ᵀ and S_t = a S_{t−1} − M_t: the surprise with the other sign."""
    q, k, v, keep, momentum, rate = map(by_token, (q, k, v, keep, momentum, rate))
    operator = reference("momentum_delta_rule/naive", "recurrent_momentum_delta_rule_ref")
    out, _ = operator(q, k, v, keep, momentum, p=k, beta=torch.ones_like(rate), eta=rate, scale=1.0)
    return by_token(out)


def hgrn(added: Tensor, decay: Tensor, *_: Any) -> Tensor:
    out, _ = reference("hgrn/naive", "naive_recurrent_hgrn")(added, decay)
    return out


def without_decay(layer: Any) -> None:
    layer.decay.log_rate.data.fill_(-1e3)  # A = exp(−1000) = 0


DELTA = {"heads": 4, "k_heads": 2, "head_dim": 5, "v_dim": 6, "chunk": CHUNK}
SIMPLE = simple_gla("naive_recurrent_simple_gla")
CASES = [
    pytest.param(GatedLinearAttention(heads=2, head_dim=5, v_dim=7, rank=2, chunk=CHUNK), "gla.scan", gla, id="gla"),
    pytest.param(HGRN2(heads=2, lower_bound=0.3, chunk=CHUNK), "hgrn2.scan", gla, id="hgrn2"),
    pytest.param(LightningAttention(heads=3, head_dim=5, chunk=CHUNK), "lightning.scan", SIMPLE, id="lightning"),
    pytest.param(Mamba2(heads=4, head_dim=6, state=5, groups=2, chunk=CHUNK), "mamba2.scan", SIMPLE, id="mamba2"),
    pytest.param(
        Mamba2(heads=4, head_dim=6, state=5, groups=2, chunk=CHUNK),
        "mamba2.scan",
        simple_gla("naive_chunk_simple_gla", chunk_size=4),
        id="mamba2 in chunks",
    ),
    pytest.param(Mamba3(heads=4, head_dim=6, state=4, groups=2, chunk=CHUNK), "mamba3.scan", SIMPLE, id="mamba3"),
    pytest.param(MLSTM(heads=2, head_dim=5, v_dim=7, chunk=CHUNK), "mlstm.scan", SIMPLE, id="mlstm"),
    pytest.param(
        Retention(heads=3, head_dim=4, v_dim=7, chunk=CHUNK),
        "retention.scan",
        simple_gla("naive_parallel_simple_gla"),
        id="retention's decays",
    ),
    pytest.param(Retention(heads=3, head_dim=4, v_dim=7, chunk=CHUNK), "retention.scan", retention, id="retention"),
    pytest.param(
        LinearAttention(heads=2, eps=1e-10, chunk=CHUNK),
        "linear_attention.scan",
        linear_attention("naive_recurrent_linear_attn"),
        id="linear_attention",
    ),
    pytest.param(
        GatedDeltaNet(**DELTA),
        "gated_deltanet.product_scan",
        gated_delta_rule("naive_recurrent_gated_delta_rule"),
        id="gated_deltanet",
    ),
    pytest.param(
        GatedDeltaNet(**DELTA),
        "gated_deltanet.product_scan",
        gated_delta_rule("naive_chunk_gated_delta_rule"),
        id="gated_deltanet in chunks",
    ),
    pytest.param(
        GatedDeltaNet(**DELTA, negative_eigenvalues=True), "gated_deltanet.product_scan", delta_rule, id="deltanet"
    ),
    pytest.param(
        GatedDeltaNet(**DELTA, householders=3), "gated_deltanet.product_scan", gated_delta_product, id="delta products"
    ),
    pytest.param(
        KimiDeltaAttention(heads=2, head_dim=5, chunk=CHUNK), "kda.delta_scan", kda("naive_recurrent_kda"), id="kda"
    ),
    pytest.param(
        KimiDeltaAttention(heads=2, head_dim=5, chunk=CHUNK),
        "kda.delta_scan",
        kda("naive_chunk_kda", chunk_size=4),
        id="kda in chunks",
    ),
    pytest.param(RWKV7(heads=3, chunk=CHUNK), "rwkv7.dplr_scan", dplr, id="rwkv7"),
    pytest.param(Titans(heads=2, head_dim=5, chunk=CHUNK), "titans.momentum_scan", momentum, id="titans"),
    pytest.param(RGLRU(heads=3, chunk=CHUNK), "rg_lru.diagonal_states", hgrn, id="rg_lru"),
]
PREPARED: dict[Scan, Callable[[Any], None]] = {delta_rule: without_decay}


def output_and_gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = layer(x, ForwardPass.of(torch.zeros(x.shape[:2])))
    out.square().sum().backward()
    assert x.grad is not None
    grads = (torch.zeros_like(each) if each.grad is None else each.grad for each in layer.parameters())
    return [out.detach(), x.grad, *grads]


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-9 * max(1.0, other.abs().max().item()))


@pytest.mark.parametrize(("spec", "scan", "theirs"), CASES)
def test_a_mixer_is_the_same_with_fla_s_reference(
    spec: Mixer, scan: str, theirs: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = layer_of(spec, D, layer=1), random_stream(T, D)
    PREPARED.get(theirs, lambda _: None)(layer)
    ours, calls = output_and_gradients(layer, x), []
    monkeypatch.setattr(f"zoo.mixers.{scan}", lambda *given, **_: calls.append(scan) or theirs(*given))
    same(ours, output_and_gradients(layer, x))
    assert calls


def test_rwkv6_is_fla_s_reference_with_its_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    layer: Any = layer_of(RWKV6(heads=3, chunk=CHUNK), D)
    x, bonus = random_stream(T, D), layer.bonus.detach().clone()
    ours = output_and_gradients(layer, x)[:2]

    def theirs(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, *_: Any) -> Tensor:
        out, _ = reference("rwkv6/recurrent_naive", "naive_recurrent_rwkv6")(q, k, v, decay, bonus, scale=1.0)
        return out

    monkeypatch.setattr("zoo.mixers.rwkv6.scan_before", theirs)
    layer.bonus.data.zero_()
    same(ours, output_and_gradients(layer, x)[:2])


def test_a_mini_batch_trains_the_weights_of_ttt_as_fla_s_reference_does() -> None:
    """One mini-batch at a constant rate. Theirs also trains a bias, which is zero until then; takes the last token's
    rate for all gradients, where the paper has each token's own; and adds the shortcut to the output in another place.
    Their loss has a factor of ½, the paper's (and ours) has none."""
    layer: Any = layer_of(TTT(heads=2, head_dim=5, chunk=T), D)
    layer.rate.weight.data.zero_()
    x, cache = random_stream(T, D), layer.new_cache(1, T, torch.float64)
    with torch.no_grad():
        layer(x, ForwardPass.of(torch.zeros(1, T)), cache)
        parts = [part(x).unflatten(-1, (2, -1)) for part in (layer.q, layer.k, layer.v)]
    operator = reference("ttt/naive", "chunk_ttt_linear_ref")
    given = {"mini_batch_size": T, "initial_state": layer.weights.detach()[None], "output_final_state": True}
    _, weights, _ = operator(*parts, layer.gain.detach(), layer.bias.detach(), 2 * 0.5 / 5, **given)
    same([cache.read(NOW, torch.float64)], [weights])
