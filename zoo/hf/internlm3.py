"""InternLM 3 and IQuest-Coder: Llama under names of their own."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf.llama import Llama


class InternLM3(Llama):
    """Shanghai AI Laboratory 2025, https://huggingface.co/internlm/internlm3-8b-instruct; IQuest Lab 2026,
    https://huggingface.co/IQuestLab/IQuest-Coder-V1-40B-Instruct."""

    model_types: ClassVar[tuple[str, ...]] = ("internlm3", "iquestcoder")
    preference: ClassVar[int] = 3
