"""Decoding of what prompts are told beside their tokens: an encoder's text, a prefix, types of tokens."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import zoo
import zoo.decode
from zoo.conformance.combinations import given_to, random_model, random_tokens
from zoo.site import Given

SHAPE = {"d_model": 24, "n_layers": 2, "vocab_size": 6}
MODELS: dict[str, dict[str, Any]] = {
    "encoder": {"encoder": {"n_layers": 1}},
    "encoder and convolutions": {"encoder": {"n_layers": 1, "block": {"canon": None}}, "block.canon": {}},
    "prefix": {"visible": "prefix"},
    "types": {"token_types": 2},
}
every_model = pytest.mark.parametrize("edits", MODELS.values(), ids=MODELS)


def models(edits: dict[str, Any]) -> tuple[zoo.Decoder, zoo.Decoder]:
    """Two with the same vocabulary, in float64."""
    spec = zoo.load("small", **{**SHAPE, **edits})
    return random_model(spec).double(), random_model(spec, seed=1).double()


def told(model: zoo.Decoder, batch: int, length: int) -> Given:
    return given_to(model.spec, batch, length, prefix=3)


def whole(model: zoo.Decoder, text: torch.Tensor, given: Given) -> torch.Tensor:
    """log p of a text without a cache; types are those of the prompt, and then 0."""
    if "token_types" in given:
        types = given["token_types"]
        rest = torch.zeros(types.shape[0], text.shape[1] - types.shape[1], dtype=types.dtype)
        given = Given(token_types=torch.cat((types, rest), dim=1))
    with torch.no_grad():
        return model(text, **given).log_softmax(dim=-1)


@every_model
def test_generation_is_that_without_a_cache(edits: dict[str, Any]) -> None:
    model, _ = models(edits)
    prompts = random_tokens(model.spec, 2, 5)
    given, text = told(model, 2, 5), prompts
    for _ in range(6):
        text = torch.cat((text, whole(model, text, given)[:, -1:].argmax(dim=-1)), dim=1)
    assert torch.equal(zoo.generate(model, prompts, 6, **given), text[:, 5:])


@every_model
def test_enough_beams_find_the_likeliest_of_all_continuations(edits: dict[str, Any]) -> None:
    model, _ = models(edits)
    prompts, new, vocabulary = random_tokens(model.spec, 2, 5), 3, SHAPE["vocab_size"]
    given = told(model, 2, 5)
    found = zoo.decode.beam_search(model, prompts, new, beams=vocabulary ** (new - 1), length_penalty=0.0, **given)
    every = torch.tensor(list(itertools.product(range(vocabulary), repeat=new)))
    for row in range(2):
        text = torch.cat((prompts[row].expand(len(every), -1), every), dim=1)
        own = {name: told[row : row + 1].expand(len(every), *told.shape[1:]) for name, told in given.items()}
        log_p = whole(model, text, own)[:, 4:-1].gather(2, every[..., None]).sum(dim=(1, 2))
        assert torch.equal(found.tokens[row, 0], every[log_p.argmax()])
        assert found.scores[row, 0].item() == pytest.approx(log_p.max().item(), rel=1e-4)


@every_model
def test_a_draft_changes_no_greedy_text(edits: dict[str, Any]) -> None:
    model, draft = models(edits)
    prompts = random_tokens(model.spec, 2, 5)
    given = told(model, 2, 5)
    expected = zoo.generate(model, prompts, 12, **given)
    for proposer in (draft, model):
        found = zoo.decode.speculate(model, proposer, prompts, 12, **given)
        assert torch.equal(found.tokens, expected)
    assert found.accepted == found.drafted


@every_model
@pytest.mark.parametrize("kind", [{"kind": "int8", "group": 4}, {"kind": "sink", "sinks": 2, "recent": 9}, "paged"])
def test_kinds_of_cache_reach_what_lies_beside_others(edits: dict[str, Any], kind: Any) -> None:
    """The cache's kind applies to mixers in parts of a block: fewer bytes, or pages, and the memory of the encoder's
    text as it is."""
    model, _ = models(edits)
    prompts, given = random_tokens(model.spec, 2, 10), told(model, 2, 10)
    cache, plain = (model.new_cache(2, 16, encoder_capacity=11, kind=k) for k in (kind, "plain"))
    with torch.no_grad():
        found, exact = model(prompts, cache, **given), model(prompts, plain, **given)
    assert (found - exact).abs().max() <= (0.05 if "int8" in str(kind) else 1e-9) * exact.abs().max()
    declared = zoo.cost(model.spec).cache_bytes(2, 16, torch.float64, 11, cache=kind)
    assert cache.nbytes == declared < plain.nbytes or kind == "paged"


def test_a_prefix_is_read_at_once_or_refused() -> None:
    model, _ = models(MODELS["prefix"])
    prompts, prefix = random_tokens(model.spec, 1, 10), torch.tensor([6])
    kind = {"kind": "sink", "sinks": 2, "recent": 4}
    with torch.no_grad():
        first = model(prompts, model.new_cache(1, 10, kind=kind), prefix=prefix)[:, :6]
        torch.testing.assert_close(first, model(prompts, prefix=prefix)[:, :6])
    with pytest.raises(
        ValueError, match=r"the first chunk must contain the whole prefix: at most 6 tokens are read in one pass"
    ):
        model(prompts, model.new_cache(1, 10, kind=kind), prefix=prefix + 1)


def test_what_is_told_reaches_each_piece() -> None:
    """A cache that reads by pieces gives every token its own type."""
    model, _ = models(MODELS["types"])
    prompts, given = random_tokens(model.spec, 2, 14), told(model, 2, 14)
    kind = {"kind": "sink", "sinks": 0, "recent": 5}
    windowed = random_model(model.spec.edit({"block.mixer.window": 5})).double()
    with torch.no_grad():
        found = model(prompts, model.new_cache(2, 14, kind=kind), **given)
        torch.testing.assert_close(found, windowed(prompts, **given), rtol=1e-5, atol=1e-5)


def test_what_cannot_be_decoded_so_is_refused_and_says_why() -> None:
    plain = random_model(zoo.load("small", **SHAPE)).double()
    model, _ = models(MODELS["encoder"])
    prompts = random_tokens(model.spec, 1, 3)
    for both, who in (((model, plain), "the model"), ((plain, model), "the draft")):
        with pytest.raises(zoo.UnsupportedError, match=f"encoder: only {who} has an encoder"):
            zoo.decode.speculate(*both, prompts, 3)
    with pytest.raises(zoo.UnsupportedError, match="lookahead needs a model with multi-token prediction"):
        zoo.decode.lookahead(model, prompts, 3, encoder_tokens=prompts)
    with pytest.raises(ValueError, match="this model has an encoder: give it encoder_tokens"):
        zoo.decode.beam_search(model, prompts, 3)
    sparse = zoo.build(zoo.load("small", **SHAPE, **{"block.mixer.sparsity": "strided"}))
    with pytest.raises(zoo.UnsupportedError, match="the sparsity pattern depends on absolute positions"):
        sparse.new_cache(1, 2000, kind="sink")
