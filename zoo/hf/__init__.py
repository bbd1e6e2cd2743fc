"""Conversion between transformers models and zoo models, with one file per model series.

    model = zoo.from_hf(AutoModelForCausalLM.from_pretrained(name))
    model = zoo.from_hf("folder")
    again = zoo.to_hf(model)

A family is a class with `model_types` in a file of this folder. It maps configs to specs, specs to configs, and tensors
to tensors. No other file lists families. A config key that a family does not understand raises UnsupportedError if
transformers' code reads it; otherwise it is dropped, with a warning if the config class does not declare it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError

from zoo.checkpoint import assemble, tokenizer_files
from zoo.errors import SpecError, UnsupportedError
from zoo.hf import _adapters, _folder, _proof, _remote, _wrappers
from zoo.hf._config import Config, ConfigJson, transformers_module
from zoo.hf._family import AUTO, CLASSES, Family, same, to_ours, to_theirs
from zoo.hf._registry import by_preference, family_named
from zoo.hf._registry import families as families
from zoo.hf._remote import save_with_code as save_with_code
from zoo.model import Decoder
from zoo.settings.edits import flatten
from zoo.settings.identity import Converted
from zoo.spec import ModelSpec, parse

REMOTE = _remote.MODEL_TYPE
"""`model_type` of folders with our modeling file."""
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
"""Special tokens, all unset: a zoo model defines none, and a config class's defaults are those of one tokenizer."""


def from_hf(hf_model: Any) -> Decoder:
    """The equivalent zoo model in evaluation mode, with a copy of the weights in their dtypes and on their device.

    hf_model: a causal, masked or sequence-to-sequence language model of transformers, or a local folder that holds one
    or a peft adapter, which is merged into its base.
    Instead of an `attention_mask`, the zoo model takes the number of padding tokens at one side of each row
    (`left_pad`, `right_pad`, `encoder_left_pad`, …). Raises UnsupportedError, which names the unsupported option.
    """
    if isinstance(hf_model, str | Path):
        folder = Path(hf_model)
        model = _opened(folder)
        with _named(folder):
            model.tokenizer = tokenizer_files(folder) or tokenizer_files(base_of(folder))
        return model
    transformers_module()
    if hf_model.config.model_type == REMOTE:
        own = {name: value.detach().clone() for name, value in hf_model.state_dict().items()}
        return _remote.ours(_remote.spec_in(hf_model.config.spec), own, type(hf_model).__name__)
    hf_model = _wrappers.language_model(hf_model, families())
    family, config, spec = _understood(hf_model)
    state = hf_model.state_dict(keep_vars=True)
    model = assemble(spec, to_ours(family, spec, state))
    model.origin = {"library": "transformers", "config": config.plain()}
    if _proof.is_here(hf_model):
        _proof.compare(hf_model, model, family.task)
    return model


def _opened(folder: Path) -> Decoder:
    """Model in a folder. A folder with our modeling file is read directly, so that none of its code runs."""
    base = base_of(folder)
    with _named(folder, base):
        if not _remote.is_one(base):
            return from_hf(_loaded(folder, base))
        model = _remote.load(base)
    if base != folder:
        tokens = _proof.some_tokens(model.embedding.weight)
        _adapters.merge(folder, _remote.Held(model), lambda: model(tokens))
    return model


def _loaded(folder: Path, base: Path) -> Any:
    config = _folder.config_of(base)
    text = _wrappers.text_config(config, families())
    auto = _auto_class(text)
    if text is config:
        hf_model = _folder.load(base, auto, config)
    else:
        whole = _folder.load(base, _wrappers.class_of(config), config, _wrappers.of_language)
        hf_model = _wrappers.language_model(whole, families())
    if base != folder:
        tokens = _proof.some_tokens(hf_model.get_input_embeddings().weight)
        _adapters.merge(folder, hf_model, lambda: _proof.logits(hf_model, tokens, family_named(text.model_type).task))
    return hf_model


def _without_weights(config: Any) -> Any:
    text = _wrappers.text_config(config, families())
    auto = _auto_class(text)
    if text is config:
        return _folder.without_weights(config, auto.from_config)
    whole = _folder.without_weights(config, _wrappers.class_of(config)._from_config)
    return _wrappers.language_model(whole, families())


def _auto_class(config: Any) -> Any:
    return getattr(transformers_module(), AUTO[family_named(config.model_type).task])


@contextmanager
def _named(*folders: Path) -> Iterator[None]:
    """Raise SpecErrors as UnsupportedErrors that name the last folder's config.json, unless they name a folder."""
    try:
        yield
    except SpecError as error:
        named = any(str(folder) in error.reason for folder in folders)
        reason = error.reason if named else f"{error.reason} ({folders[-1] / 'config.json'})"
        raise UnsupportedError(error.path, reason) from error


def base_of(folder: Path) -> Path:
    """The folder itself, or its base model's folder if it holds a peft adapter. Raises UnsupportedError."""
    return _adapters.base_of(folder) if (folder / _adapters.CONFIG).is_file() else folder


def spec_of(folder: str | Path) -> ModelSpec:
    """Spec of the checkpoint in a local folder, from configs and an adapter's tensor names. Raises UnsupportedError."""
    base = base_of(Path(folder))
    if _remote.is_one(base):
        return _remote.spec_of(base)
    with _named(Path(folder), base):
        config = _folder.config_of(base)
        hf_model = _without_weights(config)
        if base != Path(folder):
            _adapters.lora_config(Path(folder))
            if _adapters.unties(Path(folder), hf_model):
                config.tie_word_embeddings = False
                hf_model = _without_weights(config)
        return _understood(hf_model)[2]


def save_adapters(
    model: Decoder, adapters: Mapping[str, _adapters.LowRankFactors], alpha: float, folder: str | Path
) -> str:
    """Write low-rank adapters to `folder` in peft's format, and their base model to `folder/base` in transformers'.

    Args:
        model: the base model, without the adapters.
        adapters: A: (r, in) and B: (out, r), keyed by zoo matrix (`blocks.0.mixer.q`); each adds (α/r)·B·A.

    Returns:
        The `model_type` of the base: `ablate` if no family can express it, in which case it has our modeling file.

    Raises:
        UnsupportedError: the counterpart of a matrix cannot have an adapter.
    """
    folder, chosen = Path(folder), native(model)[0]
    base = (folder / "base").resolve()
    if chosen is None:
        pairs = (same(name, f"{_remote.PREFIX}{name}") for name in model.state_dict())
        _adapters.save(folder, _remote.Held(model), pairs, adapters, alpha, str(base))
        save_with_code(model, base)
        return REMOTE
    hf_model = to_hf(model)
    _adapters.save(folder, hf_model, family_named(chosen).weights(model.spec), adapters, alpha, str(base))
    with _folder.quiet():
        hf_model.save_pretrained(base)
    return chosen


def native(model: Decoder | ModelSpec) -> tuple[str | None, str]:
    """The `model_type` that `to_hf` chooses for a model, or for a model of this spec, and an empty string; None and the
    reason if no transformers family can express it."""
    spec, remembered = (model, None) if isinstance(model, ModelSpec) else (model.spec, model.origin)
    try:
        return str(_first_that_fits(spec, list(_candidates(spec, remembered, None)))[1].model_type), ""
    except UnsupportedError as error:
        return None, str(error)


def _understood(hf_model: Any) -> tuple[Family, Config, ModelSpec]:
    """Family, config and spec of a transformers model. Raises UnsupportedError."""
    transformers = transformers_module()
    model_type = hf_model.config.model_type
    family = family_named(model_type)
    expected = getattr(transformers, CLASSES[family.task])[transformers.CONFIG_MAPPING[model_type]]
    if not isinstance(hf_model, expected):
        raise UnsupportedError("", f"{type(hf_model).__name__} cannot be converted, only {expected.__name__}")
    is_tied = family.says_tied and hf_model.get_output_embeddings().weight is hf_model.get_input_embeddings().weight
    config = Config(hf_model.config, is_tied if family.says_tied else None)
    spec = _spec(family, config)
    used = _proof.read_by(type(hf_model), type(hf_model.config))
    _proof.warn_of(config.finish(used), model_type)
    return family, config, spec


def to_hf(model: Decoder, family: str | None = None) -> Any:
    """The equivalent transformers model in evaluation mode, with a copy of the weights.

    family: a `model_type` of transformers; None for the one that the model came from, with its original config, or
    else the first that can express the model. Raises UnsupportedError, which names the obstacle.
    """
    transformers = transformers_module()
    chosen, config = _first_that_fits(model.spec, list(_candidates(model.spec, model.origin, family)))
    config.dtype = model.embedding.weight.dtype  # also the dtype of tensors that are computed, not loaded
    device = model.embedding.weight.device
    with torch.random.fork_rng(devices=[]), torch.device(device), _folder.quiet():
        hf_model = getattr(transformers, AUTO[chosen.task]).from_config(config)
    weights = to_theirs(chosen, model.spec, model.state_dict(), hf_model.state_dict(keep_vars=True))
    hf_model.load_state_dict(weights, assign=True)
    hf_model.tie_weights()
    if chosen.says_tied and not model.spec.tie_embeddings:
        head = hf_model.get_output_embeddings()
        head.weight = torch.nn.Parameter(weights["lm_head.weight"])
    return hf_model.eval()


def _spec(family: Family, config: Config) -> ModelSpec:
    """Spec equivalent to the config. Raises UnsupportedError if no spec can express it, such as a dropout of 1."""
    family.ignore(config)
    try:
        return parse(family.spec(config))
    except UnsupportedError:
        raise
    except SpecError as error:
        raise UnsupportedError(error.path, error.reason) from None


Candidate = tuple[str, Family, Callable[[], ConfigJson]]
"""A `model_type`, its family, and a function that returns the config's arguments, or raises."""


def _candidates(spec: ModelSpec, origin: Converted | None, family: str | None) -> Iterator[Candidate]:
    """Candidates, in the order in which they are tried."""
    remembered = {} if origin is None else origin["config"]
    before = remembered.get("model_type")
    if before and family in (None, before):
        yield before, family_named(before), lambda: remembered
    chosen = [(family, family_named(family))] if family else by_preference()
    for name, each in chosen:
        yield name, each, partial(each.config, spec)


def _first_that_fits(spec: ModelSpec, candidates: list[Candidate]) -> tuple[Family, Any]:
    """The first family with a config for exactly this architecture, and that config. Raises UnsupportedError."""
    obstacles: list[tuple[int, str]] = []
    for name, family, arguments in candidates:
        try:
            with _folder.quiet():  # configs warn about defaults that do not concern the architecture
                config, differences = _try(spec, name, family, NO_TOKENS | arguments())
        except (ValueError, KeyError, StrictDataclassError) as error:  # transformers' configs raise these
            obstacles.append((1000, f"{name}: {error}"))
            continue
        if not differences:
            return family, config
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        obstacles.append((len(differences), f"{name}, which differs in {'; '.join(differences[:3])}{more}"))
    nearest = min(obstacles)[1]
    if len(candidates) == 1:
        raise UnsupportedError("", f"cannot be expressed as {nearest}")
    raise UnsupportedError("", f"no transformers family can express this model; the nearest is {nearest}")


def _try(spec: ModelSpec, name: str, family: Family, arguments: ConfigJson) -> tuple[Any, list[str]]:
    """A config, and the differences between its resolved architecture and `spec`, in words."""
    arguments = {key: value for key, value in copy.deepcopy(arguments).items() if key != "model_type"}
    config = transformers_module().AutoConfig.for_model(name, **arguments)
    tied = spec.tie_embeddings if family.says_tied else None
    theirs, ours = (dict(_leaves(each)) for each in (_spec(family, Config(config, tied)), spec))
    return config, [
        f"{path}: {ours[path]}" + (f", not {theirs[path]}" if path in theirs else "") if path in ours else f"no {path}"
        for path in [*ours, *(path for path in theirs if path not in ours)]
        if ours.get(path) != theirs.get(path)
    ]


def _leaves(spec: ModelSpec) -> Iterator[tuple[str, Any]]:
    """Settings that determine how the model computes, keyed by path."""
    computation = spec.computation()
    for stack in (computation, computation.get("encoder", {})):
        if "layers" in stack:
            stack["layers"] = {str(i): layer for i, layer in enumerate(stack["layers"])}
    return flatten(computation)
