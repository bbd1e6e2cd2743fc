"""RoPE in configs: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (4)."""

from __future__ import annotations

from pydantic import ValidationError

from zoo.errors import SpecError, UnsupportedError
from zoo.hf._config import MAJOR, Config, ConfigJson
from zoo.hf._layers import FULL, SLIDING, expect
from zoo.positions import Position
from zoo.positions.rope import RoPE
from zoo.positions.scalings import Scaling
from zoo.positions.scalings.by_factor import Dynamic
from zoo.positions.scalings.yarn import YaRN
from zoo.settings.edits import SpecJson
from zoo.settings.explain import explain

OPTIONAL: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": (),
    "dynamic": (),
    "llama3": ("low_freq_factor", "high_freq_factor"),
    "yarn": ("beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"),
    "longrope": ("short_factor", "long_factor", "attention_factor"),
    "proportional": (),
}
"""Settings of each `rope_type` that have the same name on both sides. Null or 0 means the default."""

FRACTION = "rope_parameters.partial_rotary_factor"

WITH_LENGTH = ("llama3", "yarn", "longrope")
"""Types with their own original length; `dynamic` uses the config's `max_position_embeddings`."""


def rope(
    config: Config,
    head_dim: int,
    layer_type: str | None = None,
    *,
    partial: bool = False,
    layout: str = "half",
    unread: tuple[str, ...] = (),
) -> SpecJson:
    """Position scheme of a spec, for heads of `head_dim` features. partial: whether the model applies
    `partial_rotary_factor`. unread: parameters without a meaning for text. Raises UnsupportedError."""
    parameters = {key: value for key, value in _parameters(config, layer_type).items() if key not in unread}
    kind = parameters.pop("rope_type", None) or parameters.get("type", "default")
    parameters.pop("type", None)
    if kind not in OPTIONAL:
        known = ", ".join(OPTIONAL)
        raise UnsupportedError("rope_parameters.rope_type", f"'{kind}' cannot be converted, only {known}")
    base, fraction = float(parameters.pop("rope_theta")), parameters.pop("partial_rotary_factor", None) or 1.0
    scaling = _scaling(config, kind, parameters, fraction) if kind != "default" else None
    for key, value in parameters.items():
        config.not_understood(f"rope_parameters.{key}", value, f"not a parameter of RoPE type '{kind}'")
    if layer_type is not None and scaling and not scaling.get("truncate", True):
        raise UnsupportedError("rope_parameters.truncate", "must not be false if RoPE is set per layer type")
    if kind == "proportional":
        fraction = 1.0
    if fraction != 1 and not partial:
        raise UnsupportedError(FRACTION, "must be 1: the model rotates all features of a head")
    config.ignore("max_position_embeddings")
    position = {"kind": "rope", "base": base, "layout": layout, "fraction": float(fraction), "scaling": scaling}
    return _whole(position, head_dim)


def _whole(position: SpecJson, head_dim: int) -> SpecJson:
    """The position with every default written out, so that as an edit it replaces another position entirely."""
    try:
        rotary = RoPE.model_validate(position)
        rotary.check(head_dim)
    except ValidationError as error:
        raise _named(explain(error, RoPE)[0]) from None
    except SpecError as error:
        raise _named(error) from None
    features = rotary.counted(head_dim)
    if features % 2 and position["scaling"] and position["scaling"]["kind"] == "yarn":
        # transformers' ramp is one step shorter than the pairs: one step is broadcast, and zero steps drop the pair.
        raise UnsupportedError(FRACTION, f"YaRN needs an even number of rotated features, not {features} of {head_dim}")
    return rotary.model_dump(mode="json")


def _named(error: SpecError) -> UnsupportedError:
    """The error with transformers' name of the invalid option."""
    option = error.path.removeprefix("scaling").removeprefix(".")
    return UnsupportedError(f"rope_parameters.{option}" if option else FRACTION, error.reason)


def _parameters(config: Config, layer_type: str | None) -> ConfigJson:
    if "rope_parameters" in config:
        # If version 5 has read a config of version 4, these are in the parameters, too.
        config.ignore("rope_theta", "rope_scaling", "partial_rotary_factor")
        found = config["rope_parameters"] or {}
        return {"rope_theta": 10_000.0, **(found if layer_type is None else found[layer_type])}
    if layer_type == SLIDING:
        return {"rope_theta": config["rope_local_base_freq"]}
    own = {"rope_theta": config.get("rope_theta", 10_000.0)}
    if config.get("partial_rotary_factor") is not None:
        own["partial_rotary_factor"] = config["partial_rotary_factor"]
    return {**own, **(config.get("rope_scaling") or {})}


def _scaling(config: Config, kind: str, parameters: ConfigJson, fraction: float) -> SpecJson:
    """Scaling of this kind. Removes the keys that it uses from `parameters`. Raises UnsupportedError."""
    scaling: SpecJson = {"kind": kind}
    if kind == "dynamic":
        scaling["original_length"] = config["max_position_embeddings"]
    if kind in WITH_LENGTH:
        # Phi-3 stores it beside the parameters.
        own = config.get("original_max_position_embeddings")
        length = parameters.pop("original_max_position_embeddings", None)
        scaling["original_length"] = own or length or config["max_position_embeddings"]
    factor = parameters.pop("factor", None)
    if factor is None and kind in ("yarn", "longrope"):
        factor = config["max_position_embeddings"] / scaling["original_length"]
    if factor is None and kind != "proportional":
        raise UnsupportedError("rope_parameters.factor", f"required by RoPE type '{kind}'")
    scaling["factor"] = float(factor or 1.0)
    if kind == "proportional":
        scaling["proportion"] = float(fraction)
    for key in OPTIONAL[kind]:
        value = parameters.pop(key, None)
        if value or value is False:
            scaling[key] = float(value) if type(value) is int else value
    return scaling


def rope_config(position: Position) -> ConfigJson:
    """RoPE as arguments of a config class. Raises UnsupportedError for another position scheme."""
    rotary = expect(position, RoPE, "mixer.position")
    return _by_version(rope_parameters(rotary), rotary.scaling)


def layered_rope_config(positions: dict[str, Position]) -> ConfigJson:
    """RoPE as arguments of a config class. positions: position scheme of each layer type in use."""
    rotary = {kind: expect(position, RoPE, "mixer.position") for kind, position in positions.items()}
    if MAJOR >= 5:
        each = {kind: _by_version(rope_parameters(rope), rope.scaling) for kind, rope in rotary.items()}
        # The config has the other arguments once for all types. `dynamic` needs its own length there, so it goes last.
        kinds = sorted(rotary, key=lambda kind: isinstance(rotary[kind].scaling, Dynamic))
        beside = {key: value for kind in kinds for key, value in each[kind].items()}
        return {**beside, "rope_parameters": {kind: one["rope_parameters"] for kind, one in each.items()}}
    near = {"rope_local_base_freq": rotary[SLIDING].base} if SLIDING in rotary else {}
    return {**(rope_config(rotary[FULL]) if FULL in rotary else {}), **near}


def partial_rope_config(position: Position) -> ConfigJson:
    """RoPE as arguments of a config class that by default rotates only some features, with the fraction written out."""
    arguments = rope_config(position)
    arguments.get("rope_parameters", arguments).setdefault("partial_rotary_factor", 1.0)
    return arguments


def rope_parameters(rotary: RoPE) -> ConfigJson:
    """Value of the config's `rope_parameters` for this RoPE."""
    parameters: ConfigJson = {"rope_type": "default", "rope_theta": rotary.base}
    if rotary.fraction != 1:
        parameters["partial_rotary_factor"] = rotary.fraction
    scaling = rotary.scaling
    if scaling is None:
        return parameters
    if scaling.kind not in OPTIONAL:
        raise UnsupportedError("mixer.position.scaling", f"{scaling.kind} has no counterpart")
    values = scaling.model_dump(mode="json")
    parameters |= {"rope_type": scaling.kind, "factor": values["factor"]}
    if scaling.kind in WITH_LENGTH:
        parameters["original_max_position_embeddings"] = values["original_length"]
    if scaling.kind == "proportional":
        parameters["partial_rotary_factor"] = values["proportion"]
    return parameters | {key: values[key] for key in OPTIONAL[scaling.kind] if values[key] is not None}


def _by_version(parameters: ConfigJson, scaling: Scaling | None) -> ConfigJson:
    extra = {}
    if isinstance(scaling, Dynamic | YaRN):  # with YaRN the extended length, as transformers expects
        length = scaling.original_length * (scaling.factor if isinstance(scaling, YaRN) else 1)
        extra["max_position_embeddings"] = int(length)
    if MAJOR >= 5:
        return {"rope_parameters": parameters, **extra}
    beside: ConfigJson = {
        key: parameters.pop(key) for key in ("rope_theta", "partial_rotary_factor") if key in parameters
    }
    return {**beside, "rope_scaling": parameters if scaling is not None else None, **extra}
