"""CodeGen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.hf._common import linears
from zoo.hf._config import Config
from zoo.hf._pairs import Pair, fused
from zoo.hf.gptj import GPTJ
from zoo.settings.edits import SpecJson
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

    def attention_weights(self, spec: ModelSpec, ours: str, theirs: str) -> Iterator[Pair]:
        parts = [f"{ours}.{name}.weight" for name in "qvk"]
        yield fused(parts, f"{theirs}.qkv_proj.weight", [spec.d_model // PARTS] * 3, PARTS)
        yield from linears(ours, theirs, {"o": "out_proj"}, ())
