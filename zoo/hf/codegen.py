"""CodeGen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.edits import SpecJson
from zoo.hf._common import linears
from zoo.hf._config import Config
from zoo.hf._pairs import Pair, fused, layernorm, same
from zoo.hf.gptj import GPTJ
from zoo.spec import ModelSpec

PARTS = 4
"""Stretches of its matrix of queries, values and keys: those of as many TPU cores."""


class CodeGen(GPTJ):
    """GPT-J with queries, values and keys in one matrix. Nijkamp et al. 2022, arXiv:2203.13474."""

    model_types: ClassVar[tuple[str, ...]] = ("codegen",)
    preference: ClassVar[int] = 2

    def spec(self, config: Config) -> SpecJson:
        config.ignore("n_ctx")
        return super().spec(config)

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "transformer.wte.weight")
        yield from layernorm("norm", "transformer.ln_f")
        yield same("head_bias", "lm_head.bias")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        for i in range(spec.n_layers):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.ln_1")
            parts = [f"{ours}.mixer.{name}.weight" for name in "qvk"]
            yield fused(parts, f"{theirs}.attn.qkv_proj.weight", [spec.d_model // PARTS] * 3, PARTS)
            yield from linears(f"{ours}.mixer", f"{theirs}.attn", {"o": "out_proj"}, ())
            names = {"up": "fc_in", "down": "fc_out"}
            yield from linears(f"{ours}.ffn", f"{theirs}.mlp", names, names)
