"""A transformers config that records which keys were read, so that none that matters is dropped silently.

Also tables of the settings that a config and a spec share, read in both directions, and the installed version of
transformers, on which the format of configs and weights depends.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, TypeAlias

from zoo.errors import UnsupportedError
from zoo.settings.edits import SpecJson

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


QKV = ("q", "k", "v")


def _equal(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Key:
    """Our setting for a config key. `read` converts the config's value to ours, `write` ours to the config's."""

    ours: str
    read: Callable[[Any], Any] = _equal
    write: Callable[[Any], Any] = _equal
    resolved: str = ""
    """Attribute of a parsed spec that has the value with defaults filled in, if it is not `ours`."""


Keys: TypeAlias = Mapping[str, str | Key]
"""Config keys with our settings of one part of a spec. A plain name stands for equal values."""


def convolved(width: int | None) -> int:
    """Width of a convolution, in tokens. Raises UnsupportedError without one: the counterpart always has one."""
    if width is None:
        raise UnsupportedError("mixer.conv", "must not be null: its counterpart always has a convolution")
    return width


BIAS = Key("bias", write=bool)
CONV = Key("conv", write=convolved)
DELTANET: Keys = {
    "linear_num_value_heads": "heads",
    "linear_num_key_heads": "k_heads",
    "linear_key_head_dim": "head_dim",
    "linear_value_head_dim": "v_dim",
    "linear_conv_kernel_dim": CONV,
}
"""Settings of Gated DeltaNet in hybrids with attention."""
QKV_BIAS = Key("bias", lambda biased: list(QKV) if biased else False, bool)
DROPOUT = Key("dropout", float)
WIDTH = Key("d_ff", resolved="width")


def either(ours: str, on: str, off: str) -> Key:
    """A boolean config key that selects one of two of our values: `on` or `off`."""
    return Key(ours, lambda flag: on if flag else off, lambda value: getattr(value, "kind", value) == on)


def read(keys: Keys, config: Config) -> SpecJson:
    """Our settings, read from a config."""
    known = {theirs: _key(ours) for theirs, ours in keys.items()}
    return {key.ours: key.read(config[theirs]) for theirs, key in known.items()}


def write(keys: Keys, part: Any, path: str = "") -> ConfigJson:
    """Config keys for the part of a spec at `path`. Raises UnsupportedError if the part lacks one of the settings."""
    arguments = {}
    for theirs, ours in keys.items():
        key = _key(ours)
        attribute = key.resolved or key.ours
        if not hasattr(part, attribute):
            raise UnsupportedError(path, f"{getattr(part, 'kind', part)} has no counterpart")
        arguments[theirs] = key.write(getattr(part, attribute))
    return arguments


def without(keys: Keys, *left_out: str) -> Keys:
    """The table without some config keys."""
    return {theirs: ours for theirs, ours in keys.items() if theirs not in left_out}


def _key(ours: str | Key) -> Key:
    return Key(ours) if isinstance(ours, str) else ours


def _major() -> int:
    try:
        return int(version("transformers").partition(".")[0])
    except PackageNotFoundError:
        return 0


MAJOR = _major()


def transformers_module() -> ModuleType:
    try:
        import transformers  # noqa: PLC0415 (an optional extra, and slow to import)
    except ImportError:
        raise ImportError("converting models needs transformers: pip install transformers peft") from None
    found: ModuleType = transformers
    return found
