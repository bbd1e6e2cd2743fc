"""Low-rank adapters: the update, what stays frozen, merging, costs, whole runs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, AutoTokenizer

import ablate
import zoo
from ablate.planning.plan import training_cost
from ablate.training.optim import build_optimizer
from ablate.training.spec import TrainSpec
from ablate.wings.starts.lora import Adapters, LoraSpec, check_lora
from store import Store
from zoo.conformance import matrix
from zoo.conformance.combinations import random_tokens
from zoo.conformance.matrix import AxisOption

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
MIXERS = ("attention", "differential", "gated_deltanet", "gla", "kda", "mamba2", "mla", "retention", "lightning")


def small(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", d_model=32, n_layers=2, vocab_size=40, **{"block.mixer.heads": 2} | edits)


def tokens() -> torch.Tensor:
    return torch.randint(0, 40, (2, 12), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mixer", MIXERS)
def test_every_matrix_learns_and_merges_exactly(mixer: str) -> None:
    """Every kind of mixer is covered: one that used a weight past its layer would leave an adapter without a
    gradient."""
    model = zoo.build(small(**{"block.mixer": mixer})).train()
    adapters = Adapters(model, LoraSpec(), seed=0)
    for number, layer in enumerate(adapters.layers):
        torch.nn.init.normal_(layer.up, generator=torch.Generator().manual_seed(number))
    model.loss(tokens(), tokens())[0].backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in adapters.parameters())
    assert all(p.grad is None for p in model.parameters())
    expected = model.eval()(tokens()).detach()
    adapters.merge()
    torch.testing.assert_close(model(tokens()), expected, rtol=1e-4, atol=1e-4)


def test_steps_are_those_that_peft_takes() -> None:
    """AdamW on the same A and B, five steps: the same weights."""
    model = zoo.build(small()).train()
    theirs: Any = zoo.to_hf(model)
    train = TrainSpec.model_validate(
        {"lr": 1e-2, "weight_decay": 0.0, "lora": {"rank": 2, "alpha": 6, "matrices": ["q", "v"]}}
    )
    assert isinstance(train.part, LoraSpec)
    part = train.part.build(model, seed=3)
    names = ["q_proj", "v_proj"]
    wrapped = get_peft_model(theirs, LoraConfig(r=2, lora_alpha=6, target_modules=names, lora_dropout=0.0))
    for ours, value in part.tensors().items():
        _, layer, _, matrix, half = ours.split(".")
        side = "A" if half == "down" else "B"
        name = f"base_model.model.model.layers.{layer}.self_attn.{matrix}_proj.lora_{side}.default.weight"
        wrapped.get_parameter(name).data.copy_(value)
    ours_optimizer = build_optimizer(part, zoo.roles(part), train, 32, 1)
    theirs_optimizer = torch.optim.AdamW(
        [p for p in wrapped.parameters() if p.requires_grad], 1e-2, (0.9, 0.95), weight_decay=0
    )
    for _ in range(5):
        model.loss(tokens()[:, :-1], tokens()[:, 1:])[0].backward()
        wrapped(tokens(), labels=tokens()).loss.backward()
        for optimizer in (ours_optimizer, theirs_optimizer):
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(model(tokens()), wrapped(tokens()).logits, rtol=1e-3, atol=1e-3)
    assert (part.tensors()["blocks.0.mixer.q.up"]).abs().max() > 1e-3


def test_dropout_is_of_what_adapters_read_in_training() -> None:
    model = zoo.build(small()).train()
    adapters = Adapters(model, LoraSpec(dropout=0.5), seed=0)
    for layer in adapters.layers:
        torch.nn.init.ones_(layer.up)
    assert not torch.equal(model(tokens()), model(tokens()))
    assert torch.equal(model.eval()(tokens()), model(tokens()))


@pytest.mark.parametrize("edits", [{}, {"tie_embeddings": False}, {"block.mixer.kv_heads": 1}])
def test_flops_change_as_torch_counts(edits: dict[str, Any]) -> None:
    """But for the gradient with respect to the first layer's input, below which nothing is trained."""
    spec, lora = small(**edits), LoraSpec(rank=3)
    whole, adapted = zoo.build(spec).train(), zoo.build(spec).train()
    Adapters(adapted, lora, seed=0)
    mixer: Any = adapted.blocks[0].mixer
    unneeded = sum(2 * (matrix.weight.numel() + 3 * matrix.in_features) for matrix in (mixer.q, mixer.k, mixer.v))
    assert counted(adapted, tokens()) - counted(whole, tokens()) == pytest.approx(
        lora.flops_change(spec) - unneeded, rel=1e-9
    )
    train = TrainSpec.model_validate({"context": 12})
    costs = [training_cost(each, spec, [12]) for each in (train, train.model_copy(update={"lora": lora}))]
    assert costs[1].flops_per_token - costs[0].flops_per_token == lora.flops_change(spec)


def counted(model: zoo.Decoder, text: torch.Tensor) -> float:
    """FLOPs per token of a forward and a backward pass."""
    with FlopCounterMode(display=False) as counter:
        model.loss(text, text)[0].backward()
    return counter.get_total_flops() / text.numel()


def test_a_name_that_no_block_has_is_told() -> None:
    with pytest.raises(zoo.SpecError, match=r"no block has a matrix 'qq' \(did you mean 'q'\?\)"):
        check_lora(small(), LoraSpec(matrices=("qq",)))


@pytest.mark.parametrize(
    ("edits", "beside"),
    [
        ({"block.mixer.position": "transformer_xl"}, "the position transformer_xl"),
        ({"sharing": {"blocks": 1, "injection": True}}, "sharing.injection"),
        ({"sharing": {"recursion": {}}}, "sharing.recursion"),
        ({"block.depth_routing": {}}, "depth_routing"),
        ({"block.norm_placement": "mhc"}, "the norm placement mhc"),
        ({"mtp": {"depth": 1}}, "mtp"),
    ],
)
def test_a_model_whose_adapters_would_be_counted_wrong_is_refused(edits: dict[str, Any], beside: str) -> None:
    with pytest.raises(zoo.SpecError, match=rf"train.lora: does not support {re.escape(beside)}: FLOPs"):
        check_lora(small(**edits), LoraSpec())


@pytest.mark.slow
@pytest.mark.parametrize("option", [*itertools.chain(*matrix.axes().values())], ids=str)
def test_flops_change_as_torch_counts_with_every_choice(option: AxisOption) -> None:
    """Or it is refused. The table learns in both, so that no gradient is left out below the first adapter."""
    spec, lora = matrix.combine([option]), LoraSpec(rank=3)
    try:
        check_lora(spec, lora)
    except zoo.SpecError as error:
        pytest.skip(str(error))
    if "t5" in option.name:
        pytest.skip("torch has another kernel for a bias that does not learn")
    whole, adapted = zoo.build(spec).train(), zoo.build(spec).train()
    Adapters(adapted, lora, seed=0)
    adapted.embedding.weight.requires_grad_()
    learned = 2.0 * spec.vocab_size * spec.table_width * spec.tie_embeddings  # as the head
    text = random_tokens(spec, 2, 16)
    assert counted(adapted, text) - counted(whole, text) == pytest.approx(lora.flops_change(spec) + learned, rel=1e-9)


def test_a_run_trains_adapters_alone_and_exports_them(study: Path, tmp_path: Path) -> None:
    text = study.read_text().replace("baseline: pre", "baseline: base")
    arms = text.index("arms:"), text.index("seeds:")
    start = "start: {arm: base, fraction: 0.5}"
    own = f"arms:\n  full: {{{start}}}\n  lora: {{{start}, train.lora: {{rank: 2}}, train.lr: 0.03}}\n"
    path = tmp_path / "lora.yaml"
    path.write_text(text[: arms[0]] + own + text[arms[1] :])
    (tmp_path / "texts").symlink_to(study.parent / "texts")
    result = ablate.run(path, store=tmp_path / "runs", engine="inprocess", sets={"seeds": 1})
    store, digests = Store(tmp_path / "runs"), dict(result.runs.select("arm", "digest").iter_rows())
    base, lora = (zoo.open(store.model_dir(digests[arm])) for arm in ("base", "lora"))
    unlike = {name for name, value in lora.state_dict().items() if not torch.equal(value, base.state_dict()[name])}
    assert unlike == {
        f"blocks.0.{name}.weight"
        for name in ("mixer.q", "mixer.k", "mixer.v", "mixer.o", "ffn.gate", "ffn.up", "ffn.down")
    }
    rank = torch.linalg.matrix_rank(lora.blocks[0].ffn.up.weight - base.blocks[0].ffn.up.weight, rtol=1e-3)  # type: ignore[union-attr]
    assert rank == 2
    ablate.export(digests["lora"], tmp_path / "peft", adapter=True, store=store.root)
    theirs = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tmp_path / "peft" / "base"), tmp_path / "peft"
    )
    words = [AutoTokenizer.from_pretrained(folder) for folder in (tmp_path / "peft", tmp_path / "peft" / "base")]
    assert words[0]("naïve text")["input_ids"] == words[1]("naïve text")["input_ids"]
    card, tokens_of = (
        (tmp_path / "peft" / "README.md").read_text(),
        dict(result.arms.select("arm", "tokens").iter_rows()),
    )
    assert f"| started from | another arm, already trained on {tokens_of['base']:,} tokens |" in card
    sample = tokens() % lora.spec.vocab_size
    with torch.no_grad():
        torch.testing.assert_close(theirs(sample).logits, lora(sample), rtol=1e-3, atol=1e-4)
    with pytest.raises(ablate.AblateError, match="trained all weights, so it has no adapter"):
        ablate.export(digests["full"], tmp_path / "none", adapter=True, store=store.root)
