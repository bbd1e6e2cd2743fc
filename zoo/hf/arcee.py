"""Arcee's AFM."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf.llama import Llama


class Arcee(Llama):
    """Llama with squared ReLU. Arcee AI 2025, https://huggingface.co/arcee-ai/AFM-4.5B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("arcee",)
    preference: ClassVar[int] = 1
    gated: ClassVar[bool] = False
