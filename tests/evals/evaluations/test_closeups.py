"""Samples and token losses of a model: against a plain loop, and where there is no room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

import zoo
from evals.conventions import TrainedConventions
from evals.evaluations.attention import AttentionSpec
from evals.evaluations.samples import SamplesSpec
from evals.evaluations.token_losses import TokenLossesSpec
from evals.found import Found
from evals.reading.windows import Text
from evals.spec import EvalSpec
from evals.subject import HeldOutText, Subject
from zoo.model import Decoder

TEXT = Text(np.random.default_rng(0).integers(97, 122, 400), np.ones(400, dtype=np.uint32))


def data(tokenizer: Tokenizer, text: Text = TEXT, eos: int = 299) -> HeldOutText:
    return HeldOutText(tokenizer, TrainedConventions(tokenizer, eos), text, documents=list, train=lambda: text.tokens)


SMALL = SamplesSpec(prompts=3, prompt_tokens=8, new_tokens=5, temperature=0)


@pytest.mark.parametrize("before", [(), (256,), (256, 257)])
def test_token_losses_are_those_of_reading_one_token_at_a_time(
    before: tuple[int, ...], model: Decoder, byte_tokenizer: Tokenizer
) -> None:
    spec = TokenLossesSpec(passages=3, tokens=12)
    found = spec.run(Subject(model, context=10), data(byte_tokenizer, replace(TEXT, before=before))).rows
    assert len(found) == 3
    for passage in found:
        first, *tokens = TEXT.tokens[passage["start"] : passage["start"] + 11].tolist()
        assert passage["pieces"] == [chr(token) for token in tokens]
        for place, nats in enumerate(passage["nats"]):
            with torch.no_grad():
                log_p = model(torch.tensor([[*(before or (first,)), *tokens[:place]]]))[0, -1].log_softmax(-1)
            assert abs(nats + float(log_p[tokens[place]])) < 2e-4


def test_samples_follow_the_prompts(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    found = SMALL.run(Subject(model, context=64), data(byte_tokenizer))
    again = SMALL.run(Subject(model, context=64), data(byte_tokenizer))
    assert found == again
    whole = byte_tokenizer.decode(TEXT.tokens.tolist())
    for text in found.rows:
        assert text["prompt"] + text["held_out"] in whole
        prompt = torch.tensor([byte_tokenizer.encode(text["prompt"]).ids])
        greedy = zoo.generate(model, prompt, 5)[0].tolist()
        assert 299 not in greedy
        assert text["sample"] == byte_tokenizer.decode(greedy, skip_special_tokens=False)


def test_a_bos_is_read_before_prompts_and_in_place_of_a_maps_first_token(
    model: Decoder, byte_tokenizer: Tokenizer
) -> None:
    held_out = replace(
        data(byte_tokenizer, replace(TEXT, before=(256,))), conventions=TrainedConventions(byte_tokenizer, 256, "on")
    )
    for text in SMALL.run(Subject(model, context=64), held_out).rows:
        prompt = torch.tensor([[256, *byte_tokenizer.encode(text["prompt"]).ids]])
        greedy = zoo.generate(model, prompt, 5)[0].tolist()
        assert text["sample"] == byte_tokenizer.decode(greedy, skip_special_tokens=False)
    spec = AttentionSpec(tokens=6)
    plain, begun = (spec.run(Subject(model, context=16), each).rows for each in (data(byte_tokenizer), held_out))
    for before, after in zip(plain, begun, strict=True):
        assert after["pieces"] == ["<eos>", *before["pieces"][1:]]


def test_attention_maps_are_softmax_weights_of_the_chosen_layers(byte_tokenizer: Tokenizer) -> None:
    """Without positions, of the first token's own query and key: by hand from the projections, in the first layer."""
    edits = {"d_model": 32, "n_layers": 5, "vocab_size": 300, "block.mixer.position": "nope"}
    model = zoo.build(zoo.load("small", **edits), seed=2).eval()
    spec = AttentionSpec(tokens=6, layers=3, heads=2)
    found = spec.run(Subject(model, context=16), data(byte_tokenizer))
    layers = found.rows
    assert [layer["layer"] for layer in layers] == [0, 2, 4]
    assert all(len(layer["heads"]) == 2 for layer in layers)
    tokens = torch.tensor([[ord(piece) for piece in layers[0]["pieces"]]])
    read: list[torch.Tensor] = []
    mixer = model.blocks[0].mixer
    mixer.register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    with torch.no_grad():
        model(tokens)
        x = read[0]
        q, k = (getattr(mixer, name)(x).view(6, 4, 8).transpose(0, 1) for name in "qk")
        scores = (q @ k.transpose(1, 2) / 8**0.5).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
        weights = scores.softmax(-1)
    for head in range(2):
        rows = layers[0]["heads"][head]
        assert [len(row) for row in rows] == [1, 2, 3, 4, 5, 6]
        for place, row in enumerate(rows):
            torch.testing.assert_close(torch.tensor(row), weights[head, place, : place + 1], atol=6e-4, rtol=0)


def test_a_model_without_attention_has_no_maps(byte_tokenizer: Tokenizer) -> None:
    model = zoo.build(zoo.load("small", d_model=32, n_layers=1, vocab_size=300, **{"block.mixer": "gated_deltanet"}))
    found = AttentionSpec().run(Subject(model, context=16), data(byte_tokenizer))
    assert found == Found(rows=[{"reason": "no layer has attention weights"}])


def test_where_there_is_no_room_it_says_so(byte_tokenizer: Tokenizer) -> None:
    edits = {"d_model": 16, "n_layers": 1, "vocab_size": 300, "block.mixer.position": {"kind": "learned", "length": 8}}
    model = zoo.build(zoo.load("small", **edits))
    (row,) = SMALL.run(Subject(model, context=64), data(byte_tokenizer, eos=0)).rows
    assert "reads at most 8 tokens" in str(row["reason"])
    few = Text(TEXT.tokens[:6], TEXT.sizes[:6])
    spec = TokenLossesSpec(tokens=8)
    (row,) = spec.run(Subject(model, context=8), data(byte_tokenizer, few)).rows
    assert "held-out text has 6" in str(row["reason"])


def test_true_is_short_for_the_defaults_and_nothing_changes_older_requests() -> None:
    assert EvalSpec.model_validate({"samples": True, "tasks": []}).samples == SamplesSpec()
    plain = EvalSpec().model_dump(mode="json")
    assert not {"samples", "token_losses"} & set(plain)
    assert EvalSpec.model_validate({"samples": False}).model_dump(mode="json") == plain
