"""Conventions by which a model reads and writes text: what stands before it, and what ends it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tokenizers import Tokenizer

from zoo.checkpoint import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Bos: TypeAlias = Literal["auto", "on", "off"]
Messages: TypeAlias = list[dict[str, str]]
"""A conversation: `role` and `content` of each turn."""

PROCESSORS = ("top_k", "top_p", "min_p", "repetition_penalty")
"""Settings of generation that a model's own file may have, and that are followed."""
_FOLLOWED = {
    *PROCESSORS,
    *("eos_token_id", "bos_token_id", "pad_token_id", "transformers_version"),
    *("do_sample", "temperature", "max_length", "max_new_tokens", "use_cache", "cache_implementation"),
}
"""Settings of such a file that are followed, that each request replaces, or that change no text."""
_ABOUT_OUTPUT = ("output_", "return_", "_")
_INERT: tuple[Any, ...] = (None, 0, 1, [], {}, "")
"""Values that switch a setting of generation off."""

Generation: TypeAlias = Mapping[str, Any]
"""Settings of a generation_config.json."""


class Conventions(ABC):
    """Rules by which strings become a model's tokens, and its tokens strings.

    before: the tokens that stand before every text. first: the token that stands for an empty context. ends: the tokens
    that end a generated text.
    """

    before: tuple[int, ...] = ()
    first: int
    ends: frozenset[int]
    stops: tuple[str, ...] = ()
    """Strings that end a generated text, beside those of the task."""
    hides_special: bool = False
    """Whether special tokens are left out of generated text."""
    generation: Generation = MappingProxyType({})
    """Settings of generation where a task has none."""
    has_template: bool = False

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Tokens of the beginning of a text."""

    @abstractmethod
    def encode_bare(self, text: str) -> list[int]:
        """Tokens of a text alone."""

    @abstractmethod
    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str: ...

    @abstractmethod
    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokens of a context that is not empty, and of what follows it."""

    @abstractmethod
    def rolling(self, text: str) -> list[int]:
        """Tokens of a whole text, all of which are scored, the first of them after `first`."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """All that decides an answer besides the tokens of the question."""

    def generation_problem(self) -> str | None:
        """Why no text can be generated; None where it can."""
        return None

    def rendered(self, messages: Messages, add_generation_prompt: bool) -> str:
        """A conversation as the text that the model reads."""
        raise ValueError("the model has no chat template")


@dataclass
class TrainedConventions(Conventions):
    """Conventions of a model that was trained here, where `eos` stands before and after every document.

    bos: `on` puts before each text what the tokenizer itself adds, or else `eos`.
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
        """Encode both as one text where that leaves the context's tokens alone. Where a token would span the boundary
        the continuation is encoded by itself, so that all of it is scored and nothing else. As in lm-eval, spaces that
        end the context belong to the continuation.
        """
        context, continuation = _spaces_after(context, continuation)
        head, whole = self.encode(context), self.encode(context + continuation)
        if whole[: len(head)] == head:
            return head, whole[len(head) :]
        return head, self.encode_bare(continuation)

    def rolling(self, text: str) -> list[int]:
        return self.encode_bare(text)

    @property
    def identity(self) -> str:
        return hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()


class Published(Conventions):
    """Conventions of a model that was trained elsewhere, as lm-eval's `hf` follows them, its oddities included.

    A token that spans the end of the context is not scored. A whole text begins with the tokens that its tokenizer
    adds, which are scored too.

    bos: `on` and `off` are lm-eval's `add_bos_token`. folder: where the model's `generation_config.json` lies.
    """

    hides_special = True

    def __init__(self, tokenizer: PreTrainedTokenizerBase, bos: Bos = "auto", folder: Path | None = None) -> None:
        self.bos = bos
        self._tokenizer: Any = tokenizer
        self._special = {} if bos == "auto" else {"add_special_tokens": bos == "on"}
        tokenizer.model_max_length = 10**30  # else a text longer than the model reads at once is a warning
        eos = self._tokenizer.eos_token_id
        self.first = eos if self._tokenizer.bos_token_id is None else self._tokenizer.bos_token_id
        path = folder and folder / "generation_config.json"
        written = read_json(path) if path and path.is_file() else {}
        self._settings: Generation = written if isinstance(written, dict) else {}
        said = self._settings.get("eos_token_id")
        self.ends = frozenset([eos] if said is None else [said] if isinstance(said, int) else said)
        self.stops = (str(tokenizer.decode([eos])),)
        self.generation = {name: self._settings[name] for name in PROCESSORS if self._settings.get(name) is not None}
        self.has_template = bool(self._tokenizer.chat_template)
        # what the tokenizer puts before a text; where that is nothing and it is told to, what lm-eval puts there
        whole, bare = self.encode("a"), self.encode_bare("a")
        own = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
        told = whole == bare and bos == "on"
        self.before = (self.first,) if told else tuple(whole[:own])

    @classmethod
    def read(cls, folder: Path, bos: Bos = "auto") -> Published:
        """Raises ValueError where transformers cannot read the tokenizer in a folder."""
        return cls(_read_tokenizer(folder, bos), bos, folder)

    @cached_property
    def _first_text(self) -> str:
        return str(self._tokenizer.decode([self.first]))

    def encode(self, text: str) -> list[int]:
        # A text that already begins so, such as a rendered conversation, gets no second one.
        special = {"add_special_tokens": False} if text.startswith(self._first_text) else self._special
        return list(self._tokenizer.encode(text, **special))

    def encode_bare(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        context, continuation = _spaces_after(context, continuation)
        head = self.encode(context)
        return head, self.encode(context + continuation)[len(head) :]

    def rolling(self, text: str) -> list[int]:
        return self.encode(text)

    @property
    def identity(self) -> str:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        words = backend.to_str() if backend is not None else str(sorted(self._tokenizer.get_vocab().items()))
        said = f"{sorted(self.ends)} {self.generation} {self._tokenizer.clean_up_tokenization_spaces}"
        return f"published {hashlib.sha256((words + said).encode()).hexdigest()}"

    def generation_problem(self) -> str | None:
        odd = sorted(
            name
            for name, value in self._settings.items()
            if name not in _FOLLOWED and not name.startswith(_ABOUT_OUTPUT) and value not in _INERT
        )
        return f"the model's generation_config.json sets {', '.join(odd)}" if odd else None

    def rendered(self, messages: Messages, add_generation_prompt: bool) -> str:
        from jinja2 import TemplateError  # noqa: PLC0415

        def render(turns: Messages) -> str:
            found = self._tokenizer.apply_chat_template(
                turns,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
            return str(found)

        try:
            return render(messages)
        except TemplateError:  # some templates know no system turn
            return render([turn for turn in messages if turn["role"] != "system"])


def _spaces_after(context: str, continuation: str) -> tuple[str, str]:
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def _read_tokenizer(folder: Path, bos: Bos) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415 (slow to load)

    said: Any = {} if bos == "auto" else {"add_bos_token": bos == "on"}
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **said)
    except Exception as error:  # its readers have errors of many kinds
        if not (folder / "tokenizer.json").is_file():
            raise ValueError(f"transformers cannot read the tokenizer: {str(error).splitlines()[0]}") from error
        found = PreTrainedTokenizerFast.from_pretrained(folder, **said)
    if found.eos_token_id is None:
        raise ValueError("the tokenizer names no end of text")
    return found
