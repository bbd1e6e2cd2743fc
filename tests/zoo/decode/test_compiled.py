"""A compiled step writes what the model writes, token by token, by one program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.decode import compiled_step, roomy_cache
from zoo.errors import UnsupportedError

BASE: dict[str, Any] = {"d_model": 16, "n_layers": 1, "vocab_size": 61, "block.mixer.heads": 4}
KINDS: dict[str, dict[str, Any]] = {
    "grouped heads": {"block.mixer.kv_heads": 2},
    "a window that fills": {"block.mixer.window": 5},
    "softcap and sinks": {"block.mixer.softcap": 3.0, "block.mixer.sinks": True},
    "T5 bias": {"block.mixer.position": "t5"},
    "ALiBi": {"block.mixer.position": "alibi"},
    "learned places": {"block.mixer.position": {"kind": "learned", "length": 256}},
    "latent keys": {"block.mixer": "mla"},
    "strided": {"block.mixer.sparsity": "strided"},
}


def written(model: zoo.Decoder, prompt: torch.Tensor, count: int, step: Any, pad: torch.Tensor | None) -> torch.Tensor:
    """Logits after each token: (B, count, V), each token the likeliest."""
    cache = roomy_cache(model, prompt.shape[0], prompt.shape[1] + count)
    found = [model.read_out(model.hidden(prompt, cache, pad)[:, -1:])[:, 0]]
    while len(found) < count:
        found.append(step(found[-1].argmax(-1, keepdim=True), cache))
    return torch.stack(found, dim=1)


@torch.no_grad()
@pytest.mark.parametrize("edits", KINDS.values(), ids=KINDS)
def test_a_program_serves_every_place(edits: dict[str, Any]) -> None:
    """Two prompts of other lengths, one of them padded at the left: one program each way."""
    spec = zoo.load("small", **{**BASE, **edits})
    model, counter = random_model(spec).double().eval(), CompileCounter()
    step = compiled_step(model, counter)
    for length in (3, 9):
        prompt = random_tokens(spec, 2, length)
        found = written(model, prompt, 8, step, None)
        tokens = torch.cat((prompt, found.argmax(-1)), dim=1)
        torch.testing.assert_close(found, model(tokens)[:, length - 1 : -1])
    assert counter.frame_count == 1


@torch.no_grad()
def test_padding_stays_unseen() -> None:
    spec = zoo.load("small", **BASE)
    model, prompt, pad = random_model(spec).double().eval(), random_tokens(spec, 2, 6), torch.tensor([0, 3])
    found = written(model, prompt, 6, compiled_step(model, "eager"), pad)
    alone = written(model, prompt[1:, 3:], 6, compiled_step(model, "eager"), None)
    torch.testing.assert_close(found[1:], alone)


def test_generating_is_the_same_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = zoo.load("small", **BASE)
    model, prompt = random_model(spec).double().eval(), random_tokens(spec, 2, 5)
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda own, **settings: compile(own, **{**settings, "backend": "eager"}))
    assert torch.equal(zoo.generate(model, prompt, 12, compile=True), zoo.generate(model, prompt, 12))


@pytest.mark.parametrize("edits", [{"block.mixer": "mamba2"}, {"block.mixer.conv": 3}])
def test_other_caches_are_refused(edits: dict[str, Any]) -> None:
    spec = zoo.load("small", **{**BASE, **edits})
    with pytest.raises(UnsupportedError, match="decode without compile"):
        zoo.generate(random_model(spec), random_tokens(spec, 1, 4), 3, compile=True)


@pytest.mark.gpu
def test_graphs_write_the_same_tokens_on_a_gpu() -> None:
    spec = zoo.load("small", d_model=64, n_layers=2, vocab_size=256)
    model, prompt = random_model(spec).cuda().eval(), random_tokens(spec, 2, 5).cuda()
    assert torch.equal(zoo.generate(model, prompt, 40, compile=True), zoo.generate(model, prompt, 40))
