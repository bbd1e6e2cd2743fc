"""Peri-LN, DeepNorm and hyper-connections against their formulas and published numbers."""

from __future__ import annotations

import math
import types
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.conformance.checking import conforms
from zoo.conformance.combinations import random_model, random_tokens
from zoo.residuals.deepnorm import decoder_only, encoder_decoder
from zoo.settings.axis import variants
from zoo.site import ForwardPass, LayerSite


def rms(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def branch(h: Tensor) -> Tensor:
    """Some map of a stream that is neither linear nor homogeneous."""
    return torch.tanh(h.roll(1, -1)) + 0.3 * h


def residual_of(placement: Any, layer: int = 0, n_layers: int = 4) -> Any:
    spec = zoo.load("small", d_model=8, n_layers=n_layers, **{"block.norm_placement": placement})
    return random_model(spec).blocks[layer].ffn_residual


X = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))


def test_peri_normalises_both_ends_of_the_branch_and_the_embedding() -> None:
    residual = residual_of("peri")
    expected = X + rms(branch(rms(X, residual.norm_in.gain)), residual.norm_out.gain)
    torch.testing.assert_close(residual(X, branch), expected)
    spec = zoo.load("small", d_model=8, n_layers=2, **{"block.norm_placement": "peri"})
    model = random_model(spec)
    seen: list[Tensor] = []
    model.blocks[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    tokens = random_tokens(spec, 1, 5)
    model(tokens)
    table = model.embedding.weight[tokens] * 8**0.5
    torch.testing.assert_close(seen[0], rms(table, model.embedding_norm.gain))
    assert spec.has_final_norm
    assert zoo.cost(spec).params - zoo.cost(spec.edit({"block.norm_placement": "double"})).params == 8


def test_deepnorm_multiplies_the_stream_and_not_the_branch() -> None:
    residual = residual_of("deepnorm", n_layers=12)
    expected = rms(2.21336 * X + branch(X), residual.norm_after.gain)
    torch.testing.assert_close(residual(X, branch), expected, rtol=1e-5, atol=1e-5)
    scaled = residual_of({"kind": "deepnorm", "stream_scale": 0.5, "branch_scale": 3.0}, n_layers=12)
    expected = rms(0.5 * 2.21336 * X + 3 * branch(X), scaled.norm_after.gain)
    torch.testing.assert_close(scaled(X, branch), expected, rtol=1e-5, atol=1e-5)


def test_deepnorm_constants_are_the_published_ones() -> None:
    """Wang et al. 2022, table of α and β: 12 layers of a decoder alone; 6 + 6 of an encoder and a decoder."""
    assert decoder_only(12) == pytest.approx((2.21336, 0.31947), abs=1e-5)
    encoder, decoder = encoder_decoder(6, 6)
    assert encoder == pytest.approx((1.41794, 0.49699), abs=1e-5)
    assert decoder == pytest.approx((2.05977, 0.34329), abs=1e-5)


def test_rezero_multiplies_the_branch_alone_and_has_no_norm() -> None:
    residual = residual_of("rezero")
    torch.testing.assert_close(residual(X, branch), X + residual.alpha * branch(X))
    spec = zoo.load("small", d_model=8, n_layers=2, **{"block.norm_placement": "rezero"})
    model, bare = zoo.build(spec), zoo.build(spec.edit({"n_layers": 1}))
    tokens = random_tokens(spec, 1, 5)
    torch.testing.assert_close(model(tokens), bare(tokens), msg="layers begin as the identity")
    with pytest.raises(
        zoo.SpecError, match=r"norm_placement: the output of gau grows with power .+ of its input: it needs"
    ):
        spec.edit({"block.mixer": "gau", "block.ffn": "none"})


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def slow_gate(gate: str, layer: Any, x: list[float], y: list[float]) -> list[float]:
    """Section 3.2 of GTrXL, feature by feature."""
    matrices = {name: part.weight.tolist() for name, part in layer.matrices.items()}
    b = [0.0] * len(x) if layer.bias is None else layer.bias.tolist()
    features = range(len(x))

    def times(name: str, i: int, of: list[float]) -> float:
        return sum(weight * value for weight, value in zip(matrices[name][i], of, strict=True))

    if gate == "gru":
        r = [sigmoid(times("w_r", i, y) + times("u_r", i, x)) for i in features]
        z = [sigmoid(times("w_z", i, y) + times("u_z", i, x) - b[i]) for i in features]
        kept = [r[i] * x[i] for i in features]
        new = [math.tanh(times("w_g", i, y) + times("u_g", i, kept)) for i in features]
        return [(1 - z[i]) * x[i] + z[i] * new[i] for i in features]
    formulas = {
        "output": lambda i: x[i] + sigmoid(times("w_g", i, x) - b[i]) * y[i],
        "input": lambda i: sigmoid(times("w_g", i, x)) * x[i] + y[i],
        "highway": lambda i: (h := sigmoid(times("w_g", i, x) + b[i])) * x[i] + (1 - h) * y[i],
        "sigmoid_tanh": lambda i: x[i] + sigmoid(times("w_g", i, y) - b[i]) * math.tanh(times("u_g", i, y)),
    }
    return [formulas[gate](i) for i in features]


@pytest.mark.parametrize("gate", ["gru", "output", "input", "highway", "sigmoid_tanh"])
def test_gates_are_those_of_gtrxl(gate: str) -> None:
    residual = residual_of({"kind": "gated", "gate": gate})
    given = branch(rms(X, residual.norm_in.gain)).clamp(min=0)
    expected = [slow_gate(gate, residual, X[0, t].tolist(), given[0, t].tolist()) for t in range(3)]
    torch.testing.assert_close(residual(X, branch), torch.tensor([expected]), rtol=1e-4, atol=1e-5)


def test_gates_begin_near_the_identity() -> None:
    """b is 2, so that z is about σ(−2) = 0.12."""
    model = zoo.build(zoo.load("small", d_model=64, n_layers=1, **{"block.norm_placement": "gated"}))
    residual, x = model.blocks[0].ffn_residual, torch.randn(1, 9, 64, generator=torch.Generator().manual_seed(0))
    assert (residual.bias == 2).all()
    assert (residual(0.1 * x, lambda h: 0 * h) - 0.1 * x).abs().mean() < 0.25 * (0.1 * x).abs().mean()


KINDS = ("attention", "mla", "differential", "cosine", "gated_deltanet", "linear_attention", "mamba2", "retention")


@pytest.mark.parametrize("mixer", [{"kind": kind} for kind in KINDS], ids=KINDS)
def test_beta_scales_the_ffn_values_and_outputs_only(mixer: dict[str, Any]) -> None:
    """Models draw by name, so that those with the same shapes differ by the factor alone."""
    edits = {"n_layers": 12, "d_model": 32, "init.output": "plain", "tie_embeddings": False}
    deep = zoo.build(zoo.load("small", **edits, **{"block.norm_placement": "deepnorm", "block.mixer": mixer}))
    post = dict(zoo.build(deep.spec.edit({"block.norm_placement": "post"})).named_parameters())
    scaled = set()
    for name, parameter in deep.named_parameters():
        if parameter.dim() < 2 or not post[name].any():
            torch.testing.assert_close(parameter, post[name], rtol=0, atol=0)
            continue
        ratio = (parameter / post[name]).median().item()
        torch.testing.assert_close(parameter, post[name] * ratio)
        assert ratio == pytest.approx(0.31947, abs=1e-5) or ratio == 1
        scaled |= {name.split(".", 2)[2]} if ratio != 1 else set()
    values = "x" if mixer.get("kind") == "mamba2" else "v"
    ffn = {f"ffn.{name}.weight" for name in ("gate", "up", "down")}
    assert scaled == {f"mixer.{values}.weight", "mixer.o.weight"} | ffn


@pytest.mark.parametrize("kind", variants("zoo.mixers"))
def test_every_mixer_says_which_projection_reads_its_values(kind: str) -> None:
    """DeepNorm's β is for it; one that nobody declares would be missed in silence."""
    cls: Any = variants("zoo.mixers")[kind]
    spec = cls.model_validate({"kind": kind, **cls.examples[0]}).resolve(24)
    layer = spec.build(LayerSite(24, 0, 4))
    expected = 0 if spec.absent else len(spec.components)
    assert len([part for part in layer.modules() if getattr(part, "values", False)]) == expected


def streams(n: int) -> Tensor:
    return torch.randn(1, 3, n, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_hyper_connections_are_their_formula(n: int, dynamic: bool) -> None:
    """Token by token: equations 2–5, and 10–13 where the connections are dynamic."""
    residual = residual_of({"kind": "hyper_connections", "n": n, "dynamic": dynamic})
    x = streams(n)
    with torch.no_grad():
        actual = residual(x, branch)
        for t in range(3):
            h = x[0, t]
            a_m, a_r, b = residual.read[:, :1], residual.read[:, 1:], residual.write[None]
            if dynamic:
                asked, own = residual.asked, rms(h, residual.asked.norm.gain)
                w_m, w_r, w_b = asked.weight.T.split((1, n, 1), dim=1)
                a_m = a_m + asked.scale[0] * torch.tanh(own @ w_m)
                a_r = a_r + asked.scale[0] * torch.tanh(own @ w_r)
                b = b + asked.scale[1] * torch.tanh(own @ w_b).T
            out = branch(rms(a_m.T @ h, residual.norm_in.gain))
            torch.testing.assert_close(actual[0, t], a_r.T @ h + b.T @ out, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("topology", ["serial", "parallel"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_hyper_connections_start_as_pre_norm_with_smaller_updates(dynamic: bool, topology: str) -> None:
    """The final norm takes the sum of n equal streams as it takes one of them; §4 divides the spread of what writes to
    the streams by √n."""
    edits = {"d_model": 16, "n_layers": 3, "init.output": "plain", "block.topology": topology}
    pre = zoo.build(zoo.load("small", **edits))
    hyper = pre.spec.edit({"block.norm_placement": {"kind": "hyper_connections", "n": 4, "dynamic": dynamic}})
    with torch.no_grad():
        for block in pre.blocks:
            for writer in (block.mixer.o, block.ffn.down):
                writer.weight /= 2
    tokens = random_tokens(pre.spec, 2, 11)
    torch.testing.assert_close(zoo.build(hyper)(tokens), pre(tokens), rtol=1e-4, atol=1e-5)


def test_each_branch_starts_at_a_stream_of_its_own() -> None:
    """A_m of the model's k-th branch, attention and FFN counted one by one, is e_(k mod n)."""
    edits = {"d_model": 8, "n_layers": 3, "block.norm_placement": {"kind": "hyper_connections", "n": 4}}
    model = zoo.build(zoo.load("small", **edits))
    residuals = [r for block in model.blocks for r in (block.mixer_residual, block.ffn_residual)]
    assert [r.read[:, 0].argmax().item() for r in residuals] == [0, 1, 2, 3, 0, 1]
    for residual in residuals:
        assert residual.read[:, 0].sum() == 1
        assert torch.equal(residual.read[:, 1:], torch.eye(4))
        assert torch.equal(residual.write, torch.ones(4))
        assert residual.asked.scale.tolist() == pytest.approx([0.01, 0.01])
        assert not residual.asked.weight.any()


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("other", ["pre", {"kind": "hyper_connections", "n": 2}])
def test_all_layers_have_the_same_streams(other: Any, n: int) -> None:
    """A single hyper-connected stream is (B, T, 1, D), which is not the (B, T, D) of the other placements."""
    edits = {"block.norm_placement": {"kind": "hyper_connections", "n": n}, "pattern": ["block", "other"]}
    reason = rf"blocks\.other\.norm_placement: all layers need a stream of the same shape: \(B, T, .*\(B, T, {n}, D\)"
    with pytest.raises(zoo.SpecError, match=reason):
        zoo.load("small", **edits, blocks={"other": {"norm_placement": other}})
    edits["block.norm_placement"] = "hyper_connections"
    static = {"norm_placement": {"dynamic": False}}
    assert zoo.load("small", **edits, blocks={"other": static}).layers[1].norm_placement.streams == 4


def doubly_stochastic(raw: Tensor, iterations: int = 20) -> Tensor:
    """Sinkhorn and Knopp: columns, then rows, are divided by their sums."""
    matrix = raw.exp()
    for _ in range(iterations):
        matrix = matrix / matrix.sum(0, keepdim=True)
        matrix = matrix / matrix.sum(1, keepdim=True)
    return matrix


@pytest.mark.parametrize("n", [2, 3])
def test_manifold_hyper_connections_are_their_formula(n: int) -> None:
    """Token by token, as arXiv:2512.24880 writes them."""
    residual = residual_of({"kind": "mhc", "n": n})
    x = streams(n)
    with torch.no_grad():
        actual = residual(x, branch)
        for t in range(3):
            h = x[0, t]
            flat = h.flatten() / (h.square().mean() + 1e-6).sqrt()
            phi_pre, phi_post, phi_res = residual.weight.split((n, n, n * n))
            b_pre, b_post, b_res = residual.bias.split((n, n, n * n))
            h_pre = torch.sigmoid(residual.scale[0] * (phi_pre @ flat) + b_pre)
            h_post = 2 * torch.sigmoid(residual.scale[1] * (phi_post @ flat) + b_post)
            h_res = doubly_stochastic((residual.scale[2] * (phi_res @ flat) + b_res).view(n, n))
            out = branch(rms(h_pre @ h, residual.norm_in.gain))
            torch.testing.assert_close(actual[0, t], h_res @ h + torch.outer(h_post, out), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(h_res.sum(0), torch.ones(n), rtol=0, atol=0.01)


def test_manifold_hyper_connections_are_those_of_deepseek_v4() -> None:
    """The implementation in transformers adds 1e-6 wherever it divides, and holds H_res transposed."""
    modeling = pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4")
    config = types.SimpleNamespace(hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6, rms_norm_eps=1e-6, hidden_size=8)
    ours, theirs, x = residual_of({"kind": "mhc"}), modeling.DeepseekV4HyperConnection(config), streams(4)
    swap = torch.cat((torch.arange(8), 8 + torch.arange(16).view(4, 4).T.flatten()))
    with torch.no_grad():
        theirs.scale.copy_(ours.scale)
        theirs.fn.copy_(ours.weight[swap])
        theirs.base.copy_(ours.bias[swap])
        post, comb, collapsed = theirs(x)
        out = branch(rms(collapsed, ours.norm_in.gain))
        expected = post[..., None] * out[..., None, :] + comb.transpose(-1, -2) @ x
        torch.testing.assert_close(ours(x, branch), expected, rtol=1e-4, atol=1e-4)


def test_streams_that_are_not_mixed_are_those_of_hunyuan_v4() -> None:
    """The implementation in transformers adds ε to both weights, here 0."""
    modeling = pytest.importorskip("transformers.models.hy_v4.modeling_hy_v4")
    config = types.SimpleNamespace(hc_mult=3, hc_eps=0.0, hc_magnitude=2.0, rms_norm_eps=1e-6, hidden_size=8)
    ours = residual_of({"kind": "mhc", "n": 3, "iterations": None})
    theirs, x = modeling.HYV4HyperConnection(config), streams(3)
    with torch.no_grad():
        theirs.scale.copy_(ours.scale)
        theirs.fn.copy_(ours.weight)
        theirs.base.copy_(ours.bias)
        post, collapsed = theirs(x)
        expected = x + post[..., None] * branch(rms(collapsed, ours.norm_in.gain))[..., None, :]
        torch.testing.assert_close(ours(x, branch), expected, rtol=1e-4, atol=1e-5)


def test_manifold_hyper_connections_start_near_pre_norm_with_streams_that_differ() -> None:
    edits = {"d_model": 16, "n_layers": 3, "init.output": "plain"}
    pre = zoo.build(zoo.load("small", **edits))
    manifold = zoo.build(pre.spec.edit({"block.norm_placement": "mhc"}))
    tokens = random_tokens(pre.spec, 2, 11)
    torch.testing.assert_close(manifold(tokens), pre(tokens), rtol=0.05, atol=0.02)
    manifold.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
    asked = manifold.blocks[0].ffn_residual.weight.grad.unflatten(-1, (4, 16))
    assert not torch.allclose(asked[:, :, 0], asked[:, :, 1])


@pytest.mark.parametrize("kind", ["pre", "output", "post", "normed", "deepnorm"])
def test_a_stream_scale_of_zero_is_a_network_without_shortcuts(kind: str) -> None:
    placement = {"kind": kind, "stream_scale": 0}
    model = random_model(zoo.load("small", d_model=16, n_layers=1, **{"block.norm_placement": placement})).double()
    block: Any = model.blocks[0]
    x = torch.randn(1, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    step = ForwardPass.of(x[..., 0])
    with torch.no_grad():
        found = block(x, step)
        for part, residual in ((block.mixer, block.mixer_residual), (block.ffn, block.ffn_residual)):
            x = residual.norm_after(residual.norm_out(part(residual.norm_in(x), step)))
    torch.testing.assert_close(found, x)


def test_a_network_without_shortcuts_conforms() -> None:
    small = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "block.mixer.heads": 4}
    conforms(zoo.load("small", **small, **{"block.norm_placement": {"kind": "pre", "stream_scale": 0}}))


@pytest.mark.parametrize("kind", ["hyper_connections", "mhc", "attention_residuals", "ngpt"])
def test_what_mixes_streams_keeps_them(kind: str) -> None:
    with pytest.raises(zoo.SpecError, match=f"must not be 0 with {kind}: it would erase the stream"):
        zoo.load("small", **{"block.norm_placement": {"kind": kind, "stream_scale": 0}})
