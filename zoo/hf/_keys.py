"""Tables of the settings that a config and a spec share, read in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson
from zoo.settings.edits import SpecJson

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
