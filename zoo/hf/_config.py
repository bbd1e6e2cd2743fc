"""A transformers config that records which keys were read, so that none that matters is dropped silently."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Set
from typing import Any, TypeAlias

from zoo.errors import UnsupportedError

BOOKKEEPING = frozenset(
    {
        "_name_or_path",
        "_num_labels",
        "architectures",
        "auto_map",
        "custom_pipelines",
        "dtype",
        "id2label",
        "label2id",
        "model_type",
        "problem_type",
        "torch_dtype",
        "transformers_version",
    }
)
"""Keys about a config's origin and its other uses."""

INERT = BOOKKEEPING | {
    "_attn_implementation_autoset",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "eos_token_id",
    "gradient_checkpointing",
    "initializer_range",
    "model_max_length",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "unk_token_id",
    "use_cache",
}
"""Keys that do not affect what a model computes: bookkeeping, special tokens, initial values, outputs of a call."""

REFUSED = frozenset({"quantization_config"})
"""Keys that transformers reads before it builds the model: refused if set."""

IMPLEMENTATION = "attn_implementation"
"""The attention backend. Most families compute the same with each, so only those that read it keep it."""

ConfigJson: TypeAlias = dict[str, Any]
"""Keys and values of a transformers `config.json`, or arguments of its config class; they differ between families."""

_MISSING = object()


class Config:
    """A config that is read key by key. `finish` raises for a key that only transformers' model code reads."""

    def __init__(self, config: Any, tied: bool | None = None) -> None:
        """tied: whether the head is tied to the token table; None to rely on the config."""
        self._values: ConfigJson = {**config.to_dict(), IMPLEMENTATION: config._attn_implementation}
        if tied is not None:
            self._values["tie_word_embeddings"] = tied
        self._aliases: dict[str, str] = type(config).attribute_map
        self._defaults: ConfigJson = type(config)().to_dict()
        self._read = {"model_type"}
        self._inner: dict[str, str] = {}

    def __getitem__(self, key: str) -> Any:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise UnsupportedError(key, "missing from the config")
        return value

    def __contains__(self, key: str) -> bool:
        return self._stored(key) in self._values

    def _stored(self, key: str) -> str:
        """The name under which the config stores a key: some config classes rename shared keys."""
        return key if key in self._values else self._aliases.get(key, key)

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or `default` if the config does not have the key."""
        key = self._stored(key)
        self._read.add(key)
        return copy.deepcopy(self._values.get(key, default))

    def first(self, *keys: str) -> Any:
        """The value of the first key that is present and not null; None if there is none."""
        values = [self.get(key) for key in keys]
        return next((value for value in values if value is not None), None)

    def only(self, key: str, *allowed: Any) -> Any:
        """A value that must be in `allowed`; an absent key counts as the first. Raises UnsupportedError."""
        value = self.get(key, allowed[0])
        if value not in allowed:
            known = ", ".join(map(repr, allowed))
            raise UnsupportedError(key, f"{value!r} cannot be converted, only {known}")
        return value

    def ignore(self, *keys: str) -> None:
        """Mark keys without a meaning for this model as read."""
        self._read.update(self._stored(key) for key in keys)

    def not_understood(self, path: str, value: object, reason: str) -> None:
        """Note a nested key that is not understood: unless it is off, `finish` raises if the model's code reads it."""
        if value not in (None, False):
            self._inner[path] = reason

    def finish(self, used: Set[str]) -> list[str]:
        """Keys with a meaning that the config class does not declare and that nothing reads.

        used: names that the model's code reads. Raises UnsupportedError if one of them, or of `REFUSED`, is unread.
        """
        unread = [key for key in self._unread() if key not in INERT and key != IMPLEMENTATION]
        aliases = {own: {alias for alias, stored in self._aliases.items() if stored == own} for own in unread}
        for key in unread:
            if key in REFUSED or not used.isdisjoint({key} | aliases[key]):
                reason = f"{self._values[key]!r} cannot be converted, only the default {self._defaults.get(key)!r}"
                raise UnsupportedError(key, f"{reason}: delete the key from config.json if it has no effect")
        for path, reason in self._inner.items():
            if path.rpartition(".")[2] in used:
                raise UnsupportedError(path, reason)
        return [*(key for key in unread if key not in self._defaults), *self._inner]

    def plain(self) -> ConfigJson:
        """The config as plain data, without bookkeeping."""
        left_out = (BOOKKEEPING | {IMPLEMENTATION}) - {"model_type"}
        return {key: value for key, value in self._values.items() if key not in left_out or key in self._read}

    def _unread(self) -> Iterator[str]:
        """Unread keys whose value is not the default. Defaults of keys that the class does not declare: null, false."""
        for key, value in self._values.items():
            known = self._defaults.get(key)
            says = value != known if key in self._defaults else value not in (None, False)
            if key not in self._read and says:
                yield key
