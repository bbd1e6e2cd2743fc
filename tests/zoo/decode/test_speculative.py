"""Speculation: greedily what is said without, and otherwise the same distribution."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

import zoo
from tests.many import few
from zoo.conformance.combinations import random_model, random_tokens
from zoo.decode import Sampling, Speculated, Stop, lookahead, speculate
from zoo.decode.lookahead import MtpDraft
from zoo.site import ForwardPass

# With a head of its own: one that is the token table makes a random model say the same token again and again.
SHAPE = {"d_model": 24, "n_layers": 2, "vocab_size": 11, "tie_embeddings": False}
MODELS: dict[str, dict[str, Any]] = {
    "attention": {},
    "window": {"block.mixer.window": 3},
    "latent": {"block.mixer": {"kind": "mla", "kv_rank": 8, "nope_dim": 6, "rope_dim": 6}},
    "convolution": {"block.mixer.conv": 3},
    "state": {"block.mixer": {"kind": "mamba2", "head_dim": 12, "state": 5, "chunk": 4}},
    "hybrid": {"block.mixer": "gated_deltanet", "blocks.attn.mixer": "attention", "pattern": ["block", "attn"]},
    "learned positions": {"block.mixer.position": {"kind": "learned", "length": 64}},
}
every_model = pytest.mark.parametrize("edits", MODELS.values(), ids=MODELS)


def model_of(seed: int = 0, **edits: Any) -> zoo.Decoder:
    return random_model(zoo.load("small", **{**SHAPE, **edits}), seed).double()


def nudged(model: zoo.Decoder, by: float) -> zoo.Decoder:
    """A model that often agrees with this one."""
    other, state = random_model(model.spec).double(), model.state_dict()
    generator = torch.Generator().manual_seed(5)
    other.load_state_dict({k: v + by * torch.randn(v.shape, generator=generator) for k, v in state.items()})
    return other


@every_model
@pytest.mark.parametrize("ahead", few([3, 1, 7], 1))
def test_greedy_speculation_says_what_is_said_without(edits: dict[str, Any], ahead: int) -> None:
    model = model_of(**edits)
    prompts, accepted, refused = random_tokens(model.spec, 2, 6), 0, 0
    expected = zoo.generate(model, prompts, 20)
    for far in (0.02, 0.4):
        found = speculate(model, nudged(model, far), prompts, 20, ahead=ahead)
        assert torch.equal(found.tokens, expected)
        assert found.passes <= 20
        accepted, refused = accepted + found.accepted, refused + found.drafted - found.accepted
    assert accepted > 0
    assert refused > 0


@pytest.mark.parametrize("settings", [{"repetition_penalty": 1.4}, {}], ids=str)
def test_unequal_prompts_and_stops_are_those_of_generate(settings: dict[str, Any]) -> None:
    model = model_of()
    prompts, pads = random_tokens(model.spec, 3, 7), torch.tensor([0, 4, 2])
    whole = zoo.generate(model, prompts, 20, left_pad=pads, **settings)
    stop = Stop([whole[0, 4:6].tolist(), whole[2, 9:12].tolist()])
    expected = zoo.generate(model, prompts, 20, left_pad=pads, stop=stop, **settings)
    found = speculate(model, nudged(model, 0.02), prompts, 20, left_pad=pads, stop=stop, **settings)
    assert torch.equal(found.tokens, expected)


def test_a_draft_that_is_the_model_is_always_right() -> None:
    model = model_of()
    generator = torch.Generator().manual_seed(0)
    settings = {"temperature": 1.0, "ahead": 4}
    found = speculate(model, model, random_tokens(model.spec, 1, 4), 21, generator=generator, **settings)
    assert found.tokens.shape == (1, 21)
    assert (found.passes, found.drafted, found.accepted) == (5, 16, 16)


TINY = {"n_layers": 1, "vocab_size": 4, "d_model": 16}
HOT = {"temperature": 0.8, "top_p": 0.95}


def tiny(seed: int, **edits: Any) -> zoo.Decoder:
    return random_model(zoo.load("small", **{**TINY, "block.mixer.heads": 2, **edits}), seed)


@torch.no_grad()
def expected_chances(model: zoo.Decoder, prompt: torch.Tensor, new: int) -> torch.Tensor:
    """(Vⁿ,): of every continuation, one token after the other."""
    sampling, chances = Sampling(**HOT), []
    for text in itertools.product(range(model.spec.vocab_size), repeat=new):
        chance, read = 1.0, prompt
        for token in text:
            chance *= float(sampling.probabilities(model(read)[:, -1], read)[0, token])
            read = torch.cat((read, torch.tensor([[token]])), dim=1)
        chances.append(chance)
    return torch.tensor(chances, dtype=torch.float64)


def counted(found: list[torch.Tensor], vocabulary: int) -> torch.Tensor:
    """(Vⁿ,): how often each continuation was said."""
    rows = torch.cat(found)
    places = vocabulary ** torch.arange(rows.shape[1]).flip(0)
    return (rows * places).sum(1).bincount(minlength=vocabulary ** rows.shape[1])


def agreement(counts: torch.Tensor, chances: torch.Tensor) -> float:
    """The p-value of a χ² test, with what is expected fewer than five times taken together."""
    assert not counts[chances == 0].any()
    expected = chances / chances.sum() * counts.sum()
    rare = expected < 5
    observed = torch.cat((counts[~rare], counts[rare].sum()[None]))
    wanted = torch.cat((expected[~rare], expected[rare].sum()[None]))
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    return float(chisquare(observed, wanted).pvalue)


def test_samples_are_distributed_as_without_a_draft() -> None:
    model, draft, prompt = tiny(0), tiny(1), torch.tensor([[1, 3]])
    chances, generator = expected_chances(model, prompt, 3), torch.Generator().manual_seed(0)
    say = lambda: speculate(model, draft, prompt.expand(20, -1), 3, ahead=2, generator=generator, **HOT)  # noqa: E731
    found = [say().tokens for _ in range(70)]
    assert agreement(counted(found, 4), chances) > 0.01
    # The test would see it, were the draft's words taken.
    words = [zoo.generate(draft, prompt.expand(20, -1), 3, generator=generator, **HOT) for _ in range(70)]
    assert agreement(counted(words, 4), chances + 1e-9) < 1e-6


def foreseeing(depth: int, final_norm: str = "shared", **edits: Any) -> zoo.Decoder:
    return model_of(mtp={"depth": depth, "final_norm": final_norm}, **edits)


@every_model
@pytest.mark.parametrize("depth", [1, 3])
def test_lookahead_says_what_is_said_without(edits: dict[str, Any], depth: int) -> None:
    model = foreseeing(depth, **edits)
    prompts, pads = random_tokens(model.spec, 2, 6), torch.tensor([0, 3])
    found = lookahead(model, prompts, 20, left_pad=pads)
    assert torch.equal(found.tokens, zoo.generate(model, prompts, 20, left_pad=pads))


def test_lookahead_samples_as_the_model_does() -> None:
    model, prompt = tiny(0, mtp={"depth": 2}), torch.tensor([[1, 3]])
    chances, generator = expected_chances(model, prompt, 3), torch.Generator().manual_seed(0)
    found = [lookahead(model, prompt.expand(20, -1), 3, generator=generator, **HOT).tokens for _ in range(25)]
    assert agreement(counted(found, 4), chances) > 0.01


@every_model
@pytest.mark.parametrize("norm", ["shared", "own"])
def test_modules_draft_as_they_were_trained(edits: dict[str, Any], norm: str) -> None:
    """Every draft against the modules run over the whole text without a cache, as training runs them."""
    model = foreseeing(3, norm, **edits)
    text, greedy = random_tokens(model.spec, 1, 15), Sampling()
    draft = MtpDraft(model, 1, 40, None, None)
    streams = model.stream(text)
    read = 0
    for length in (2, 3, 6, 7, 11, 15):
        found, _ = draft.propose(text[:, :length], streams[:, read : length - 1], 3, greedy.probabilities)
        read = length - 1
        assert found.tolist() == [slow_drafts(model, text[:, :length], streams)]


def slow_drafts(model: zoo.Decoder, text: torch.Tensor, streams: torch.Tensor) -> list[int]:
    drafts: list[int] = []
    own = model.spec.mtp is not None and model.spec.mtp.final_norm == "own"
    h = streams[:, : text.shape[1] - 1]
    h = model.norm(h) if own else h
    for k, module in enumerate(model.mtp, start=1):
        whole = torch.cat((text, torch.tensor([drafts], dtype=torch.long)), dim=1)
        begun = model.step(whole, 0, None, {})
        embedded = model.embed(whole, begun)[:, k:]
        step = ForwardPass(torch.arange(k, whole.shape[1]), shared=begun.shared, start=k)
        h = module(h, embedded, step)
        drafts.append(int(model.read_out(h[:, -1] if own else model.norm(h[:, -1])).argmax()))
    return drafts


def test_lookahead_that_is_right_saves_passes() -> None:
    """All logits alike but for one token: every module foresees it."""
    model = foreseeing(2, head_bias=True)
    with torch.no_grad():
        model.head_bias.zero_()[3] = 1000.0  # type: ignore[index, union-attr]
    found: Speculated = lookahead(model, random_tokens(model.spec, 2, 5), 19)
    assert found.tokens.eq(3).all()
    assert (found.passes, found.accepted) == (7, 12)


def test_what_cannot_draft_is_refused() -> None:
    model = model_of()
    with pytest.raises(zoo.UnsupportedError, match="mtp: lookahead needs a model with multi-token prediction"):
        lookahead(model, random_tokens(model.spec, 1, 3), 4)
    with pytest.raises(ValueError, match="the draft must have the model's vocabulary of 11 tokens, not 12"):
        speculate(model, model_of(vocab_size=12), random_tokens(model.spec, 1, 3), 4)
