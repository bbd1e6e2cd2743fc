"""What papers call things is found: the first screen of `ablate find` has it."""

from __future__ import annotations

import json

import pytest

import ablate
from ablate.cli import main
from ablate.wings.find.finding import everything, terms
from tests.many import few
from zoo.vocabulary import nearest, says, synonyms

FIRST = 6
"""Results that count as the first screen."""
PHRASES = {
    "qk norm": "qk_norm",
    "QK-norm": "qk_norm",
    "query-key normalization": "qk_norm",
    "sliding window": "window",
    "Sliding-Window Attention": "window",
    "SWA": "window",
    "local attention": "window",
    "WSD": "schedule: wsd",
    "warmup-stable-decay": "schedule: wsd",
    "trapezoidal schedule": "schedule: wsd",
    "learning rate schedule": "schedule",
    "cosine annealing": "schedule: cosine",
    "tied": "tie_embeddings",
    "tying": "tie_embeddings",
    "weight tying": "tie_embeddings",
    "untied embeddings": "tie_embeddings",
    "GQA": "kv_heads",
    "multi-query attention": "kv_heads",
    "multi-head latent attention": "mixers: mla",
    "SwiGLU": "ffns: swiglu",
    "squared ReLU": "ffns: relu2",
    "mixture of experts": "ffns: topk_moe",
    "MoE": "ffns: topk_moe",
    "load-balancing loss": "balance_loss",
    "rotary embeddings": "positions: rope",
    "rope theta": "base",
    "ALiBi": "positions: alibi",
    "no positional encoding": "positions: nope",
    "relative position bias": "positions: t5",
    "pre-LN": "norm_placement",
    "Post-Norm": "norm_placement",
    "sandwich norm": "norm_placement",
    "RMSNorm": "norms: rmsnorm",
    "dynamic tanh": "norms: dyt",
    "parallel attention": "topology",
    "attention sinks": "sinks",
    "logit soft-capping": "softcap",
    "gated attention": "gate",
    "state space models": "mixers: mamba",
    "Mamba-2": "mixers: mamba2",
    "delta rule": "mixers: gated_deltanet",
    "RetNet": "mixers: retention",
    "linear transformers": "mixers: linear_attention",
    "native sparse attention": "mixers: nsa",
    "multi-token prediction": "mtp",
    "layer sharing": "sharing",
    "Muon": "optimizers: muon",
    "Newton-Schulz": "optimizers: muon",
    "muP": "width_transfer",
    "hyperparameter transfer": "width_transfer",
    "EMA": "average",
    "gradient clipping": "grad_clip",
    "knowledge distillation": "teacher",
    "masked language modeling": "objectives: masked",
    "associative recall": "sources: mqar",
    "needle in a haystack": "sources: needle",
    "lm-eval harness": "evaluations: tasks",
    "speculative decoding": "decoding: speculate",
    "mlp ratio": "d_ff",
    "hidden size": "d_model",
    "batch size": "batch",
    # of papers since 2023
    "gated delta networks": "mixers: gated_deltanet",
    "DeltaProduct": "householders",
    "Kimi Delta Attention": "mixers: kda",
    "state space duality": "mixers: mamba2",
    "data-dependent decay": "mixers: gla",
    "gated linear attention": "mixers: gla",
    "lightning attention": "mixers: lightning",
    "FoX": "forget",
    "test-time training": "mixers: ttt",
    "neural memory": "mixers: titans",
    "learning to memorize at test time": "mixers: titans",
    "mixture of block attention": "mixers: moba",
    "DeepSeek sparse attention": "mixers: dsa",
    "lightning indexer": "mixers: dsa",
    "multi-token attention": "mixers: multi_token",
    "manifold-constrained hyper-connections": "residuals: mhc",
    "peri-LN": "norm_placement",
    "NTK-aware scaling": "positions.scalings: ntk",
    "partial RoPE": "fraction",
    "cross-layer KV sharing": "reuse_kv",
    "cross-layer attention": "reuse_kv",
    "YOCO": "reuse_kv",
    "KV cache quantization": "caches: int8",
    "mixture of recursions": "recursion",
    "looped transformer": "sharing",
    "fine-grained experts": "ffns: deepseek_moe",
    "auxiliary-loss-free load balancing": "ffns: deepseek_moe",
    "zero-computation experts": "zero_experts",
    "value residual learning": "value_residual",
    "U-net skip connections": "unet_skips",
    "nGPT normalized transformer": "residuals: ngpt",
    "dynamic chunking": "chunks",
    "H-Net": "chunks",
    "byte latent": "chunks",
    "SOAP optimizer": "optimizers: soap",
    "Shampoo": "optimizers: soap",
    "NorMuon": "neuron_beta",
    "cautious weight decay": "cautious_decay",
    "maximal update parametrization": "width_transfer",
    "linear decay to zero": "schedule: linear",
    "learning rate cooldown": "schedule: wsd",
    "layer-wise loss": "layer_loss",
    "LayerDrop": "stochastic_depth",
    "ABF": "base",
    "softmax off by one": "sinks",
    "embedding scaling": "embedding_scale",
    "residual scaling": "branch_scale",
    "depth-scaled initialization": "init",
    "normalization-free": "norms: none",
    "Chinchilla optimal": "tokens_per_parameter",
    "critical batch size": "batch",
    "scaling laws": "ladder",
    "lookahead decoding": "decoding: lookahead",
    "self-speculative": "decoding: lookahead",
    "fill in the middle": "objectives: blank_infilling",
    "UL2": "objectives: span_corruption",
    "dropless MoE": "ffns: topk_moe",
    "Goose": "mixers: rwkv7",
    "hybrid Mamba attention": "pattern",
    "parallel hybrid heads": "mixers: parallel",
    "Hymba": "mixers: parallel",
    "exclusive self attention": "exclusive",
    "sigmoid gating after SDPA": "gate",
    "short convolution": "mixers: short_conv",
    "length extrapolation": "evaluations: positions",
    "cloze likelihood": "evaluations: tasks",
    # several words that no entry has as one phrase
    "MoE load balancing": "moe_balance",
    "load balancing": "balance_loss",
    "balancing experts": "balance_loss",
    "kv cache size": "cache_kinds",
    "GQA groups": "kv_heads",
    "rope base": "base",
    "rope base frequency": "base",
    "document masking": "documents",
    "best schedule for Muon": "optimizers: muon",
    "does QK norm help": "qk_norm",
    "GQA or MLA": "mixers: mla",
    "SwiGLU vs GELU": "ffns: swiglu",
    "hamster wheel": "",
}


@pytest.mark.parametrize("phrase", few([*reversed(PHRASES)], 50))
def test_a_phrase_of_papers_is_found_by_name(phrase: str) -> None:
    name = PHRASES[phrase]
    found = [each.name for each in ablate.find(phrase)[:FIRST]]
    assert name in found if name else not found


def test_settings_of_one_name_are_told_apart_and_parts_precede_values() -> None:
    assert next(each for each in ablate.find("rope base") if each.kind == "setting").about.startswith(
        "Base of the freq"
    )
    assert ablate.find("swiglu")[0].name == "ffns: swiglu"


def test_what_nothing_says_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The other words are searched for all the same, and matter in the order of how many an entry has."""
    assert main(["find", "hamster", "attention"]) == 0
    assert "says 'hamster'" in capsys.readouterr().out
    assert main(["find", "hamster wheel"]) == 2
    assert main(["find", "untrusted", "nowhere"]) == 2, "each is said somewhere, and they have nothing in common"
    assert capsys.readouterr().err.strip().endswith("or says, 'untrusted nowhere'")
    assert terms("how does GQA work") == ("GQA", "work")
    assert ablate.find("MoE hamster balancing")[:2] == ablate.find("MoE balancing")[:2]


def test_every_synonym_is_of_something() -> None:
    """The table's names are those of settings, values, variants and studies, and none is a synonym of itself."""
    known = {name for each in everything() for name in (each.name, each.name.split(": ")[-1])}
    assert sorted(set(synonyms()) - known) == []


@pytest.mark.parametrize("phrase", ["qk norm", "QK-norm", "sliding window", "WSD", "learning rate schedule"])
def test_claims_studies_and_zoo_ask_the_same_words(phrase: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", phrase, "--json"]) == 0
    kinds = {each["kind"] for each in json.loads(capsys.readouterr().out)}
    assert (main(["claims", phrase]) == 0) == ("claim" in kinds)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("word", "suggested"),
    [
        ("tied", "tie_embeddings"),
        ("tying", "tie_embeddings"),
        ("weight tying", "tie_embeddings"),
        ("sliding window", "window"),
        ("rotary", "rope"),
        ("QK Norm", "qk_norm"),
    ],
)
def test_an_unknown_name_of_the_zoo_is_translated(
    word: str, suggested: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoo", word]) == 2
    assert f"did you mean '{suggested}'?" in capsys.readouterr().err


def test_a_value_is_told_as_that_of_its_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "WSD"]) == 2
    assert "'wsd' is a value of schedule, see `ablate zoo schedule`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "phrase", "is_said"),
    [
        ("RMSNorm reaches the loss", "rms-norm", True),
        ("QK-norm widens the range", "qk norms", True),
        ("a window of W tokens", "sliding window", True),
        ("normalisation of queries", "normalization", True),
        ("the window", "windowed", False),
        ("attention to tokens", "retention", False),
        ("grows", "rows", False),
    ],
)
def test_words_are_equal_but_for_their_spelling(text: str, phrase: str, is_said: bool) -> None:
    assert says(text, phrase) == is_said


def test_a_name_is_preferred_to_one_that_is_spelled_alike() -> None:
    assert nearest("swish", ["swiglu", "silu", "switch"]) == "silu"
    assert nearest("Post-LN", ["block.norm", "block.norm_placement"]) == "block.norm_placement"
    assert nearest("nothing", ["silu"]) is None
