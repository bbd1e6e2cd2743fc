"""Conventions by which a model reads and writes text: tokens that begin it, and tokens that end it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from tokenizers import Tokenizer

Bos: TypeAlias = Literal["auto", "on", "off"]
Messages: TypeAlias = list[dict[str, str]]
"""A conversation: `role` and `content` of each turn."""

PROCESSORS = ("top_k", "top_p", "min_p", "repetition_penalty")
"""Generation settings of a model's generation_config.json that are applied."""
Generation: TypeAlias = Mapping[str, Any]
"""Settings of a generation_config.json."""


class Conventions(ABC):
    """Rules that convert strings to a model's tokens, and tokens to strings.

    before: the tokens before every text. first: the token that replaces an empty context. ends: the tokens that end a
    generated text.
    """

    before: tuple[int, ...] = ()
    first: int
    ends: frozenset[int]
    stops: tuple[str, ...] = ()
    """Strings that end a generated text, in addition to the task's."""
    hides_special: bool = False
    """Whether special tokens are left out of generated text."""
    generation: Generation = MappingProxyType({})
    """Generation settings that apply unless a task sets them."""
    has_template: bool = False

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Tokens of the beginning of a text, with those before it."""

    @abstractmethod
    def encode_bare(self, text: str) -> list[int]:
        """Tokens of a text without added tokens."""

    @abstractmethod
    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str: ...

    @abstractmethod
    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokens of a non-empty context, and of its continuation."""

    @abstractmethod
    def rolling(self, text: str) -> list[int]:
        """Tokens of a whole text, all of which are scored, the first of them after `first`."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Identity of everything in the conventions that affects an answer, besides the tokens of the question."""

    def generation_problem(self) -> str | None:
        """Reason why no text can be generated; None if it can."""
        return None

    def rendered(self, messages: Messages, add_generation_prompt: bool) -> str:
        """A conversation as the text that the model reads. Raises ValueError without a chat template."""
        raise ValueError("the model has no chat template")


@dataclass
class TrainedConventions(Conventions):
    """Conventions of a model that was trained here, with `eos` before and after every document.

    bos: `on` begins each text with the token that the tokenizer itself adds, or else with `eos`.
    """

    tokenizer: Tokenizer
    eos: int
    bos: Bos = "auto"

    def __post_init__(self) -> None:
        added = self.tokenizer.encode("", add_special_tokens=True).ids[:1]
        self.before = tuple(added or [self.eos]) if self.bos == "on" else ()
        self.first = self.before[0] if self.before else self.eos
        self.ends = frozenset([self.eos])

    def encode(self, text: str) -> list[int]:
        return [*self.before, *self.encode_bare(text)]

    def encode_bare(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Encode both as one text if that does not change the context's tokens. If a token would span the boundary,
        encode the continuation by itself, so that all of it is scored and nothing else. As in lm-eval, spaces at the
        end of the context belong to the continuation.
        """
        context, continuation = spaces_after(context, continuation)
        head, whole = self.encode(context), self.encode(context + continuation)
        if whole[: len(head)] == head:
            return head, whole[len(head) :]
        return head, self.encode_bare(continuation)

    def rolling(self, text: str) -> list[int]:
        return self.encode_bare(text)

    @property
    def identity(self) -> str:
        return hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()


def spaces_after(context: str, continuation: str) -> tuple[str, str]:
    """Both texts, with spaces at the end of the context moved to the continuation."""
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation
