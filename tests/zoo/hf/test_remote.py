"""Folders with a modeling file of ours: transformers and lm-eval run what no family of transformers expresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import zoo
from ablate.data.tokenizers.bytes import byte_tokenizer
from ablate.wings.starts.lora import Adapters, LoraSpec
from tests.zoo.hf import parity
from zoo.errors import UnsupportedError
from zoo.hf import native, save_adapters, save_with_code, spec_of
from zoo.hf._modeling import pads_of

EDITS: dict[str, dict[str, Any]] = {
    "post-norm": {"block.norm_placement": "post", "embedding_scale": 2.0},
    "retention": {"block.mixer": {"kind": "retention", "heads": 2}},
    "alibi and experts": {
        "block.mixer.position": "alibi",
        "block.ffn": {"kind": "topk_moe", "experts": 3, "top_k": 2, "d_ff": 16},
        "block.norm": "dyt",
    },
}
"""Models of no family."""
MASKED = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def built(edits: dict[str, Any]) -> zoo.Decoder:
    base = {"d_model": 16, "n_layers": 2, "vocab_size": 264, "block.mixer.heads": 2}
    own = {name: value for name, value in base.items() if not (name == "block.mixer.heads" and "block.mixer" in edits)}
    return zoo.build(zoo.load("small", **own, **edits), seed=3).eval()


def opened(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()


def with_tokenizer(folder: Path) -> None:
    eos = byte_tokenizer().id_to_token(256)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=eos, pad_token=eos)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    "edits", [pytest.param(e, id=n, marks=[pytest.mark.slow] * (n == "retention")) for n, e in EDITS.items()]
)
def test_transformers_has_the_same_logits_and_the_same_text(edits: dict[str, Any], tmp_path: Path) -> None:
    model = built(edits)
    assert native(model) == native(model.spec)
    assert native(model)[0] is None
    save_with_code(model, tmp_path, context=64, end=256)
    theirs = opened(tmp_path)
    tokens = torch.randint(0, 256, (3, 11), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(11) >= torch.tensor([0, 2, 5])[:, None]).long()
    with torch.no_grad():
        assert torch.equal(theirs(tokens).logits, model(tokens))
        padded = theirs(tokens, attention_mask=mask).logits
        for row, start in enumerate((0, 2, 5)):
            parity.assert_near(padded[row, start:], model(tokens[row : row + 1, start:])[0])
        expected = zoo.generate(model, tokens, 6)
        for cached in (True, False):
            found = theirs.generate(tokens, max_new_tokens=6, min_new_tokens=6, do_sample=False, use_cache=cached)
            assert torch.equal(found[:, -6:], expected[:, -6:])
    loss = theirs(tokens, labels=tokens).loss
    torch.testing.assert_close(loss, model.nats(tokens[:, :-1], tokens[:, 1:]).mean(), rtol=1e-4, atol=1e-4)
    for again in (zoo.from_hf(tmp_path), zoo.from_hf(theirs)):
        assert again.spec == model.spec == spec_of(tmp_path)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in again.state_dict().items())


@pytest.mark.parametrize("row", [[1, 1, 0, 1], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 1, 0, 0, 1]], ids=str)
def test_a_hole_in_an_attention_mask_is_refused(row: list[int]) -> None:
    with pytest.raises(ValueError, match="only at the ends of a row"):
        pads_of(torch.tensor([[1] * len(row), row]), len(row))


def test_an_attention_mask_may_leave_out_tokens_at_either_end() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    left, right = pads_of(mask, 4)
    assert left is not None and right is not None
    assert (left.tolist(), right.tolist()) == ([0, 1, 3, 0], [1, 1, 0, 0])
    assert pads_of(torch.tensor([[1, 1, 0], [1, 0, 0]]), 3)[0] is None
    assert pads_of(torch.ones(2, 3), 3) == (None, None)


@torch.no_grad()
def test_generation_reads_each_token_once(tmp_path: Path) -> None:
    """Greedy, with padding, several samples and beams: the same text as without a cache."""
    model = built(EDITS["post-norm"])
    save_with_code(model, tmp_path, context=64)
    theirs = opened(tmp_path)
    tokens = torch.randint(0, 256, (2, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1] * 7, [0, 0, 0, 1, 1, 1, 1]])
    lengths: list[int] = []
    theirs.model.embedding.register_forward_hook(lambda _module, given, _out: lengths.append(given[0].shape[1]))
    for settings in ({}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}):
        asked = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "attention_mask": mask, **settings}
        lengths.clear()
        found = theirs.generate(tokens, **asked)
        assert lengths == [7, 1, 1, 1, 1]
        assert torch.equal(found, theirs.generate(tokens, **asked, use_cache=False))
    torch.manual_seed(0)
    sampled = theirs.generate(tokens, do_sample=True, max_new_tokens=5, num_return_sequences=3, use_cache=True)
    torch.manual_seed(0)
    assert torch.equal(
        sampled, theirs.generate(tokens, do_sample=True, max_new_tokens=5, num_return_sequences=3, use_cache=False)
    )


@torch.no_grad()
def test_every_argument_is_used_or_refused(tmp_path: Path) -> None:
    model = built(EDITS["post-norm"])
    save_with_code(model, tmp_path)
    theirs = opened(tmp_path)
    tokens = torch.randint(0, 256, (2, 6), generator=torch.Generator().manual_seed(0))
    expected = model(tokens)
    mask, places = torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]]), torch.arange(6).repeat(2, 1)
    assert torch.equal(theirs(tokens, position_ids=places, token_type_ids=0 * tokens).logits, expected)
    assert torch.equal(theirs(tokens, return_dict=False)[0], expected)
    assert torch.equal(theirs(tokens, logits_to_keep=2).logits, expected[:, -2:])
    assert torch.equal(theirs(tokens, logits_to_keep=torch.tensor([0, 3])).logits, expected[:, [0, 3]])
    padded = theirs(tokens, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
    parity.assert_near(padded[1, 2:], model(tokens[1:, 2:])[0])
    refused: list[tuple[dict[str, Any], str]] = [
        ({"position_ids": places + 1}, "position_ids"),
        ({"position_ids": places, "attention_mask": mask}, "position_ids"),
        ({"token_type_ids": torch.ones_like(tokens)}, "token_type_ids"),
        ({"inputs_embeds": torch.ones(2, 6, 16)}, "inputs_embeds"),
        ({"output_hidden_states": True}, "hidden states"),
        ({"output_attentions": True}, "attentions"),
        ({"use_cache": True}, "past_key_values"),
        ({"labels": tokens, "logits_to_keep": 1}, "logits_to_keep"),
        ({"attention_mask": mask[:, 1:]}, r"attention_mask: must have the shape \(batch, 6\)"),
    ]
    for given, said in refused:
        with pytest.raises(ValueError, match=said):
            theirs(tokens, **given)
    with pytest.raises(TypeError, match="never_heard_of"):
        theirs(tokens, never_heard_of=1)
    with pytest.raises(ValueError, match="cache_implementation"):
        theirs.generate(tokens, max_new_tokens=2, cache_implementation="static")


@torch.no_grad()
def test_padding_and_types_of_an_encoders_tokens_are_heeded(tmp_path: Path) -> None:
    """Through the modeling file, though `ablate export` writes it for causal models alone."""
    spec = {"vocab_size": 64, "d_model": 16, "n_layers": 2, "visible": "all", "token_types": 2}
    model = zoo.build(zoo.parse({**spec, "block": {"mixer": {"kind": "attention", "heads": 2}}}), seed=3).eval()
    save_with_code(model, tmp_path)
    theirs = opened(tmp_path)
    tokens = torch.randint(0, 64, (2, 6), generator=torch.Generator().manual_seed(0))
    mask, types = torch.tensor([[1] * 6, [0, 1, 1, 1, 0, 0]]), torch.tensor([[0, 0, 1, 1, 1, 1]] * 2)
    found = theirs(tokens, attention_mask=mask, token_type_ids=types).logits
    parity.assert_near(found[1, 1:4], model(tokens[1:, 1:4], token_types=types[1:, 1:4])[0])
    parity.assert_near(found[0], model(tokens[:1], token_types=types[:1])[0])


def test_lm_eval_loads_it_by_itself(tmp_path: Path) -> None:
    model = built(EDITS["post-norm"])
    save_with_code(model, tmp_path, context=64, end=256)
    with_tokenizer(tmp_path)
    judge = HFLM(pretrained=str(tmp_path), trust_remote_code=True, device="cpu", batch_size=2, dtype="float32")
    assert judge.max_length == 64
    asked = [("the quick", " brown fox"), ("a", "b")]
    requests = [Instance("loglikelihood", {}, pair, 0) for pair in asked]
    for (context, text), (found, _) in zip(asked, judge.loglikelihood(requests, disable_tqdm=True), strict=True):
        whole, start = byte_tokenizer().encode(context + text).ids, len(byte_tokenizer().encode(context).ids)
        with torch.no_grad():
            said = model(torch.tensor([whole[:-1]]))[0].log_softmax(-1)
        expected = sum(said[i - 1, whole[i]].item() for i in range(start, len(whole)))
        assert found == pytest.approx(expected, rel=1e-4)


@MASKED
def test_adapters_of_peft_go_both_ways(tmp_path: Path) -> None:
    torch.manual_seed(0)  # of the adapters, here and in peft
    model = built(EDITS["post-norm"])
    tokens = torch.randint(0, 256, (2, 9), generator=torch.Generator().manual_seed(0))
    adapters = Adapters(zoo.build(model.spec, seed=3), LoraSpec(rank=2, alpha=4.0), seed=1)
    pairs = {
        name: (torch.randn_like(adapters.tensors()[f"{name}.down"]), torch.randn_like(adapters.tensors()[f"{name}.up"]))
        for name in adapters.names
    }
    assert save_adapters(model, pairs, 4.0, tmp_path / "ours") == "ablate"
    ours = zoo.from_hf(tmp_path / "ours")
    theirs = PeftModel.from_pretrained(opened(tmp_path / "ours" / "base"), tmp_path / "ours").eval()
    with torch.no_grad():
        parity.assert_near(ours(tokens), theirs(tokens).logits)
        assert (ours(tokens) - model(tokens)).abs().max() > 0.01
    config = LoraConfig(r=2, target_modules=["q", "down"], init_lora_weights=False)
    trained = get_peft_model(opened(tmp_path / "ours" / "base"), config).eval()
    trained.save_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        parity.assert_near(zoo.from_hf(tmp_path / "theirs")(tokens), trained(tokens).logits)
        (tmp_path / "ours").rename(tmp_path / "moved")
        assert torch.equal(zoo.from_hf(tmp_path / "moved")(tokens), ours(tokens))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": {"d_model": 16, "n_layers": 2, "vocab_size": 264, "blok": {}}}, "blok"),
        ({"spec": None}, "config.json: spec"),
        ({"spec": {"d_model": 32, "n_layers": 2, "vocab_size": 264}}, "embedding.weight"),
    ],
)
def test_a_changed_config_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    save_with_code(built(EDITS["post-norm"]), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UnsupportedError, match=message):
        zoo.from_hf(tmp_path)


def test_a_number_that_is_none_is_named(tmp_path: Path) -> None:
    model = built(EDITS["post-norm"])
    with torch.no_grad():
        model.embedding.weight[3, 2] = float("nan")
    save_with_code(model, tmp_path)
    with pytest.raises(UnsupportedError, match=rf"embedding\.weight: contains infinities or NaN.*{tmp_path}"):
        zoo.from_hf(tmp_path)


def test_no_code_of_a_folder_is_run_here(tmp_path: Path) -> None:
    model = built(EDITS["post-norm"])
    save_with_code(model, tmp_path)
    (tmp_path / "modeling_ablate.py").write_text("raise SystemExit('run')")
    assert zoo.from_hf(tmp_path).spec == model.spec
