"""Language models inside models that read images or sound, too. transformers loads the whole model, by its own names of
weights; the language model inside is then taken out of it, once it is shown to compute the whole model's logits."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from zoo.errors import UnsupportedError
from zoo.hf import _folder, _proof
from zoo.hf._config import transformers_module

KNOWN = """
    audioflamingo3 cosmos3_omni deepseek_vl deepseek_vl_hybrid exaone4_5 fast_vlm fun_asr_nano fuyu gemma3 gemma3n
    gemma4 gemma4_unified glm46v glm4v glm4v_moe glm_ocr glmasr glmga got_ocr2 granite_speech granite_speech_plus
    hunyuan_vl hyperclovax_vision_v2 idefics2 idefics3 internvl janus kimi_k25 lfm2_vl lighton_ocr llama4 llava
    llava_next llava_next_video llava_onevision minicpm_ocr minicpmv4_6 minicpmv4_7 mistral3
    moss_transcribe_diarize musicflamingo nemo_speechlm nemotron_h_omni ovis2 perception_lm pp_chart2table
    qianfan_ocr qwen2_5_vl qwen2_audio qwen2_vl qwen3_5 qwen3_5_moe qwen3_asr qwen3_vl qwen3_vl_moe smolvlm
    vibevoice vibevoice_asr video_llama_3 video_llava vipllava voxtral
"""
PROVEN = frozenset(KNOWN.split())
"""`model_type`s that compute, on text, the logits of the language model inside them."""
ON_TEXT: dict[str, tuple[str, dict[str, bool]]] = {
    "glm4v_moe_text": ("glm4_moe", {}),
    "glm4v_text": ("glm4", {"attention_bias": True}),
    "glm_ocr_text": ("glm4", {"attention_bias": False}),
    "hunyuan_vl_text": ("hunyuan_v1_dense", {}),
    "qwen2_5_vl_text": ("qwen2", {}),
    "qwen2_vl_text": ("qwen2", {}),
    "qwen3_vl_moe_text": ("qwen3_moe", {"norm_topk_prob": True}),
    "qwen3_vl_text": ("qwen3", {}),
}
"""Bodies whose RoPE has axes of time, height and width, which are equal in text: the `model_type` that computes the
same there, by weights of the same names, and the settings that the body has not as keys."""
OF_AXES = ("mrope_section", "mrope_interleaved")
"""Parameters of RoPE with axes."""
REMEDY = "convert a checkpoint of the language model alone"
MAPPINGS = ("MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
"""transformers' mappings that may have the class of a whole model, in order of preference."""


def text_config(config: Any, families: Container[str]) -> Any:
    """Config of the language model inside; the config itself if there is none. Raises UnsupportedError if that one can
    be converted, but the whole model is not `PROVEN`."""
    inner = getattr(config, "text_config", None)
    if inner is None or config.model_type in families:
        return config
    if inner.model_type in ON_TEXT:  # the config of the model that computes what this one does on text
        model_type, settings = ON_TEXT[inner.model_type]
        own = type(inner)().to_dict().keys() - {"model_type"}  # its code reads no others
        given = {key: value for key, value in inner.to_dict().items() if key in own}
        given["head_dim"] = getattr(inner, "head_dim", None) or inner.hidden_size // inner.num_attention_heads
        rope = {key: value for key, value in given["rope_parameters"].items() if key not in OF_AXES}
        given["rope_parameters"] = {**rope, "rope_type": rope["rope_type"].replace("mrope", "default")}
        inner = transformers_module().CONFIG_MAPPING[model_type](**{**given, **settings})
        inner._attn_implementation = _folder.PLAIN
    if config.model_type not in PROVEN and inner.model_type in families:
        reason = f"'{config.model_type}' contains a {inner.model_type}, but is not known to compute its logits on text"
        raise UnsupportedError("model_type", f"{reason}: {REMEDY}")
    if not hasattr(config, "tie_word_embeddings"):
        config.tie_word_embeddings = inner.tie_word_embeddings
    return inner


def class_of(config: Any) -> Any:
    """transformers' class of a whole model."""
    mappings = (getattr(transformers_module(), f"MODEL_FOR_{name}_MAPPING") for name in MAPPINGS)
    return next(mapping[type(config)] for mapping in mappings if type(config) in mapping)


def language_model(whole: Any, families: Container[str]) -> Any:
    """The language model inside, which shares its modules with `whole`; a model that contains none is returned as it
    is. Raises UnsupportedError if their logits on text differ."""
    text = text_config(whole.config, families)
    if text is whole.config or text.model_type not in families:
        return whole
    body, head = _parts(whole)
    inner = _folder.without_weights(text, transformers_module().MODEL_FOR_CAUSAL_LM_MAPPING[type(text)]._from_config)
    name = next((name for name, module in inner.named_modules() if type(module) is type(body)), None)
    if name is not None:
        inner.set_submodule(name, body)
    else:  # by `ON_TEXT`
        own = inner.base_model
        try:
            own.load_state_dict(body.state_dict(keep_vars=True), assign=True)
        except RuntimeError as error:
            reason = f"its {type(body).__name__} has other weights than a {type(own).__name__}"
            raise UnsupportedError("", f"{type(whole).__name__}: {reason}: {_folder.one_line(error)}") from error
        own.rotary_emb = type(own.rotary_emb)(text).to(head.weight.device)
    inner.set_output_embeddings(head)
    text.tie_word_embeddings = head.weight is inner.get_input_embeddings().weight
    inner.train(whole.training)
    _prove(whole, inner)
    return inner


def _parts(whole: Any) -> tuple[nn.Module, nn.Module]:
    """Body and head of the language model inside. Raises UnsupportedError if there is none."""
    transformers, text = transformers_module(), type(whole.config.text_config)
    kinds = transformers.MODEL_MAPPING[text], transformers.MODEL_FOR_CAUSAL_LM_MAPPING.get(text, None)
    body, complete = (next((m for m in whole.modules() if type(m) is kind), None) for kind in kinds)
    head = (complete or whole).get_output_embeddings()
    if body is None or head is None:
        raise UnsupportedError("", f"{type(whole).__name__} contains no {kinds[0].__name__} with a head")
    return body, head


def of_language(whole: Any, names: Iterable[str]) -> list[str]:
    """Those of the names of a whole model's weights that do not belong to a part beside the language model."""
    own = {module for part in _parts(whole) for module in part.modules()}
    others = set(_beside(own, whole))
    return [name for name in names if not others & set(name.split("."))]


def _beside(own: set[nn.Module], module: nn.Module) -> Iterator[str]:
    """Names of the modules that contain nothing of `own`, as far up the tree as possible."""
    for name, child in module.named_children():
        if child not in own and not own & set(child.modules()):
            yield name
        elif child not in own:
            yield from _beside(own, child)


def _prove(whole: Any, inner: Any) -> None:
    """Raise UnsupportedError unless both have the same logits for random tokens, none of which stands for an image or a
    sound. Weights that cannot be run here must be of the family that `PROVEN` is about."""
    table = inner.get_input_embeddings().weight
    if table.is_meta:
        return  # there are only shapes to convert
    tokens = _proof.some_tokens(table)
    special = [value for key, value in vars(whole.config).items() if "_token_i" in key and isinstance(value, int)]
    plain = tokens[~torch.isin(tokens, torch.tensor(special, device=tokens.device))]
    tokens = plain[: len(plain) // 2 * 2].view(2, -1)
    who, kind = type(whole).__name__, whole.config.text_config.model_type
    usual = type(whole.config)().text_config.model_type
    difference = _proof.difference_between(whole, inner, tokens) if _proof.is_here(whole) else None
    if difference is None and kind != usual:
        raise UnsupportedError("", f"{who} contains a {kind}, not a {usual}, and cannot be run here to compare the two")
    if difference:
        reason = f"its logits on text differ from those of its {kind} by {difference:.2g} of the largest"
        raise UnsupportedError("", f"{who}: {reason}: {REMEDY}")
