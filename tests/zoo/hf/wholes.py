"""Whole models, with towers for images or sound, around a random small language model of one of our families."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoModel,
    Gemma3nVisionConfig,
    PreTrainedConfig,
    PreTrainedModel,
    TimmWrapperConfig,
)

from tests.zoo.hf.parity import draw, eager
from zoo.hf import families
from zoo.hf._wrappers import ON_TEXT, class_of

SMALL = {
    **dict.fromkeys(("num_hidden_layers", "depth", "encoder_layers", "num_layers", "qformer_num_layers"), 1),
    **dict.fromkeys(("intermediate_size", "mlp_dim", "encoder_ffn_dim", "mlp_size", "vocab_size"), 32),
}
"""Sizes that towers have, each of which can be reduced alone."""


AFTER_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling")
HEADS = {"hidden_size": 24, "num_attention_heads": 2}
VISION = {"hidden_size": 32, "num_heads": 4, "out_hidden_size": 32}
NARROW: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": {"hidden_size": 24, "num_attention_heads": 2}},
    "cohere2_vision": {
        "vision_config": {"hidden_size": 24, "num_attention_heads": 2},
        "alignment_intermediate_size": 8,
    },
    "exaone4_5": {
        "vision_config": {"hidden_size": 32, "num_heads": 4, "num_key_value_heads": 2, "out_hidden_size": 32}
    },
    **{name: {"vision_config": VISION} for name in ("glm4v", "glm4v_moe", "hyperclovax_vision_v2", "qwen2_5_vl")},
    "qwen2_vl": {"vision_config": {"embed_dim": 32, "hidden_size": 32, "num_heads": 4}},
    **{name: {"vision_config": {**VISION, "deepstack_visual_indexes": [0]}} for name in ("qwen3_vl", "qwen3_vl_moe")},
    "janus": {"vq_config": {"base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1}},
    "perception_lm": {"vision_config": {"model_type": "timm_wrapper", "model_args": {"embed_dim": 8}}},
    "vibevoice": {"audio_config": {"num_filters": 2}, "semantic_model_config": {"num_filters": 2}},
    "vibevoice_asr": {
        "acoustic_tokenizer_encoder_config": {"num_filters": 2},
        "semantic_tokenizer_encoder_config": {"num_filters": 2},
    },
}
"""Towers that are large even with a single layer, or whose default cannot be built."""


class Tower(PreTrainedModel):
    """In place of the towers whose code is timm's."""

    config_class = TimmWrapperConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.patch = nn.Linear(2, 2)


class Gemma3nTower(Tower):
    config_class = Gemma3nVisionConfig


def without_timm() -> None:
    AutoModel.register(TimmWrapperConfig, Tower, exist_ok=True)
    AutoModel.register(Gemma3nVisionConfig, Gemma3nTower, exist_ok=True)


@functools.cache
def wrappers() -> dict[str, str]:
    """Family of the language model inside, keyed by the wrapper's `model_type`: all that the installed transformers has
    around a family that we convert."""
    found = {}
    for name, kind in CONFIG_MAPPING.items():
        try:
            inner = getattr(kind(), "text_config", None)
        except (
            ValueError,
            StrictDataclassError,
        ):  # without a default, none is one of ours
            continue
        if name not in families() and _family_of(getattr(inner, "model_type", None)) in families():
            found[name] = inner.model_type
    return found


def _family_of(model_type: str | None) -> str | None:
    """The family that a body is on text."""
    return ON_TEXT[model_type][0] if model_type in ON_TEXT else model_type


def config(name: str, family: str, seed: int = 0) -> Any:
    """A wrapper's config, with small towers, around a random small language model. For odd seeds, what follows its head
    is that of its family by default: many whole models leave it out, and then cannot be converted."""
    drawn = draw(families()[str(_family_of(family))].model_types[0], seed)
    text = drawn.to_dict() | {"model_type": family, "dtype": "float32"}
    usual = CONFIG_MAPPING[family]().to_dict()
    text |= {key: usual[key] for key in AFTER_HEAD if seed % 2 and key in usual}
    if family == "glm4v_text":
        text["hidden_size"] = text["num_attention_heads"] * text.pop("head_dim")  # not one of its settings
    if family.startswith("gemma4"):
        text["pad_token_id"] = 0  # the whole reads it in place of images
    if family in ON_TEXT:
        text["rope_parameters"]["mrope_section"] = _thirds(CONFIG_MAPPING[family](**text))
    kind = CONFIG_MAPPING[name]
    more = NARROW.get(name, {})
    if name == "fun_asr_nano":
        more = {"adaptor_config": _adaptor(drawn.hidden_size)}
    whole = kind(text_config=CONFIG_MAPPING[family](**text), **more)
    for key, part in vars(whole).items():
        if isinstance(part, PreTrainedConfig) and key != "text_config":
            _shrink(part)
    whole.tie_word_embeddings = drawn.tie_word_embeddings
    whole.dtype = torch.float32
    return whole


def _thirds(text: Any) -> list[int]:
    """Pairs of rotated features for time, height and width."""
    with torch.device("meta"):
        pairs = len(AutoModel.from_config(text).rotary_emb.inv_freq)
    return [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]


def _adaptor(hidden_size: int) -> dict[str, int]:
    return {"hidden_size": hidden_size, "intermediate_size": hidden_size // 4, "num_attention_heads": 1}


def _shrink(part: Any) -> None:
    for key, value in list(vars(part).items()):
        if isinstance(value, PreTrainedConfig):
            _shrink(value)
        elif key in SMALL and isinstance(value, int) and not (key == "vocab_size" and hasattr(part, "blank_token_id")):
            setattr(part, key, min(value, SMALL[key]))


def model(config: Any) -> Any:
    """A whole model, every parameter of whose language model is random."""
    torch.manual_seed(0)
    whole = eager(class_of(config)(config))
    with torch.no_grad():
        for parameter in whole.parameters():
            if parameter.numel() < 100_000:  # towers are not compared
                parameter.add_(0.2 * torch.randn_like(parameter))
    return whole.eval()


def save(whole: Any, folder: Path) -> None:
    """Save a whole model; `tie_word_embeddings` is left out at the top of configs whose class does not declare it."""
    whole.save_pretrained(folder)
    if not hasattr(type(whole.config)(), "tie_word_embeddings"):
        path = folder / "config.json"
        found = json.loads(path.read_text())
        del found["tie_word_embeddings"]
        path.write_text(json.dumps(found))
