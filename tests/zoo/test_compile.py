"""torch.compile sees one graph: a break would cost what compiling gains, and nobody would notice.

Compiled as training compiles it, without `fullgraph`, which would take a number read on the host into the graph and
so hide it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
import torch
from torch._dynamo import error_on_graph_break
from torch._dynamo.exc import Unsupported

import zoo
from zoo.conformance.combinations import given_to, random_model, random_tokens
from zoo.conformance.matrix import axes, combine
from zoo.ffns import Ffn, _experts

LENGTH = 17


class Break(NamedTuple):
    why: str
    told: str
    """The part of torch's message that names the place."""


CHUNKS = Break(
    "how many chunks there are is read on the host, and is the size of what the layers between run on",
    "the function `Chunking.run` should not be traced",
)
EXPERTS = Break(
    "how many rows an expert has is read on the host, and says how large its product is", "in sizes_on_host\n"
)


@pytest.mark.parametrize(
    "edits",
    [
        {"block.norm_placement": "double", "block.mixer.kv_heads": 1, "block.mixer.position": "t5"},
        {"blocks": {"local": {"mixer.window": 4}, "far": {"mixer.position": "alibi"}}, "pattern": ["local", "far"]},
        {"block.topology": "parallel", "block.mixer.softcap": 5.0, "block.mixer.position": "learned", "z_loss": 1e-3},
        {"block.mixer": {"kind": "mla", "q_rank": 7}, "block.norm_placement": "hyper_connections"},
        {"block.mixer": {"kind": "differential", "heads": 2}, "block.norm_placement": "deepnorm"},
        {"block.mixer": {"kind": "cosine", "value_residual": True}, "block.norm_placement": "peri"},
    ],
    ids=["t5", "alibi", "learned", "mla", "differential", "cosine"],
)
def test_the_loss_is_one_graph(edits: dict[str, Any]) -> None:
    assert_one_graph(zoo.load("small", d_model=16, n_layers=2, vocab_size=31, **edits))


def test_experts_are_one_graph_where_one_kernel_multiplies_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_experts, "can_group", lambda *_: True)
    ffn = {"kind": "topk_moe", "experts": 3, "top_k": 2, "d_ff": 8, "bias": True}
    with torch.autocast("cpu", torch.bfloat16):
        assert_one_graph(zoo.load("small", d_model=16, n_layers=2, vocab_size=31, **{"block.ffn": ffn}))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("axis", axes())
def test_the_loss_with_every_choice_is_one_graph(axis: str) -> None:
    for option in axes()[axis]:
        spec = combine([option])
        allowed = allowed_break(spec)
        if allowed is None:
            assert_one_graph(spec)
        else:
            with pytest.raises(Unsupported, match=re.escape(allowed.told)):
                assert_one_graph(spec)


def allowed_break(spec: zoo.ModelSpec) -> Break | None:
    """The break that makes the loss more than one graph; None where it is one."""
    if spec.chunks is not None:
        return CHUNKS
    return EXPERTS if any(takes_what_it_is_sent(layer.ffn, spec.d_model) for layer in spec.layers) else None


def takes_what_it_is_sent(ffn: Ffn, d_model: int) -> bool:
    """Whether the number of tokens of an expert follows from the text; experts that choose take a fixed one."""
    return ffn.cost(d_model).inactive > 0 and not ffn.sees_text


def assert_one_graph(spec: zoo.ModelSpec) -> None:
    model, tokens, given = random_model(spec).train(), random_tokens(spec, 2, LENGTH), given_to(spec, 2, LENGTH - 1)
    torch.compiler.reset()
    graphs: list[torch.fx.GraphModule] = []

    def as_it_is(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = torch.compile(model.loss, dynamic=False, backend=as_it_is)
    torch.manual_seed(0)  # of dropout
    expected = model.loss(tokens[:, :-1], tokens[:, 1:], **given)
    torch.manual_seed(0)
    with error_on_graph_break(True):
        got = compiled(tokens[:, :-1], tokens[:, 1:], **given)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    assert len(graphs) == 1
