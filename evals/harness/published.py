"""Conventions of models that were trained elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.conventions import PROCESSORS, Bos, Conventions, Generation, Messages, spaces_after
from zoo.checkpoint import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FOLLOWED = {
    *PROCESSORS,
    *("eos_token_id", "bos_token_id", "pad_token_id", "transformers_version"),
    *("do_sample", "temperature", "max_length", "max_new_tokens", "use_cache", "cache_implementation"),
}
"""Settings of that file that are applied, that each request overrides, or that do not change the text."""
_ABOUT_OUTPUT = ("output_", "return_", "_")
_INERT: tuple[Any, ...] = (None, 0, 1, [], {}, "")
"""Values that switch a generation setting off."""


class Published(Conventions):
    """Conventions of a model that was trained elsewhere, as lm-eval's `hf` follows them, quirks included.

    A token that spans the end of the context is not scored. A whole text begins with the tokens that its tokenizer
    adds, which are scored too.

    bos: `on` and `off` are lm-eval's `add_bos_token`. folder: the folder of the model's `generation_config.json`.
    """

    hides_special = True

    def __init__(self, tokenizer: PreTrainedTokenizerBase, bos: Bos = "auto", folder: Path | None = None) -> None:
        self.bos = bos
        self._tokenizer: Any = tokenizer
        self._special = {} if bos == "auto" else {"add_special_tokens": bos == "on"}
        tokenizer.model_max_length = 10**30  # else transformers warns about texts longer than this
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
        # the tokens that the tokenizer adds before a text; if it adds none with `on`, the token that lm-eval adds
        whole, bare = self.encode("a"), self.encode_bare("a")
        own = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
        told = whole == bare and bos == "on"
        self.before = (self.first,) if told else tuple(whole[:own])

    @classmethod
    def read(cls, folder: Path, bos: Bos = "auto") -> Published:
        """Conventions of the model in a folder. Raises ValueError if transformers cannot read its tokenizer."""
        from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415 (slow to load)

        said: Any = {} if bos == "auto" else {"add_bos_token": bos == "on"}
        try:
            found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **said)
        except Exception as error:  # its readers raise errors of many types
            if not (folder / "tokenizer.json").is_file():
                raise ValueError(f"transformers cannot read the tokenizer: {str(error).splitlines()[0]}") from error
            found = PreTrainedTokenizerFast.from_pretrained(folder, **said)
        if found.eos_token_id is None:
            raise ValueError("the tokenizer has no end-of-text token")
        return cls(found, bos, folder)

    @cached_property
    def _first_text(self) -> str:
        return str(self._tokenizer.decode([self.first]))

    def encode(self, text: str) -> list[int]:
        # A text that already begins with `first`, such as a rendered conversation, gets no second one.
        special = {"add_special_tokens": False} if text.startswith(self._first_text) else self._special
        return list(self._tokenizer.encode(text, **special))

    def encode_bare(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        context, continuation = spaces_after(context, continuation)
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
        except TemplateError:  # some templates do not support a system turn
            return render([turn for turn in messages if turn["role"] != "system"])
