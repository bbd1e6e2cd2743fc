"""transformers models as zoo models, and back: one file per line of models.

    model = zoo.from_hf(AutoModelForCausalLM.from_pretrained(name))
    model = zoo.from_hf("folder")
    again = zoo.to_hf(model)

A family is a class with `model_types` in a file of this folder: it says how a config becomes a spec, how a spec becomes
a config, and which tensors correspond. Nothing else lists families. What a config says and a family does not understand
is an error where transformers' code reads it, and is left out with a warning where nobody does.
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
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import AUTO, CLASSES, Family
from zoo.hf._pairs import same
from zoo.hf._registry import by_preference, family_named
from zoo.hf._registry import families as families
from zoo.hf._remote import save_with_code as save_with_code
from zoo.hf._version import transformers_module
from zoo.hf._weights import to_ours, to_theirs
from zoo.model import Decoder
from zoo.settings.edits import flatten
from zoo.settings.origin import Converted
from zoo.spec import ModelSpec, parse

REMOTE = _remote.MODEL_TYPE
"""The `model_type` of folders with a modeling file of ours."""
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
"""A model knows nothing of the meaning of its tokens, and a config's defaults are those of one tokenizer."""


def from_hf(hf_model: Any) -> Decoder:
    """The same model, with weights of its own in the same types and on the same device, in evaluation mode.

    hf_model: a causal, masked or sequence-to-sequence language model of transformers, or a local folder that holds one
    or an adapter of peft, which is merged into its base.
    Where it takes an `attention_mask`, ours takes the number of padding tokens at a side of each row (`left_pad`,
    `right_pad`, `encoder_left_pad`, …). Raises UnsupportedError, which names the option.
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
    family, config, spec = _understood(hf_model)
    state = hf_model.state_dict(keep_vars=True)
    model = assemble(spec, to_ours(family, spec, state))
    model.origin = {"library": "transformers", "config": config.plain()}
    if _proof.is_here(hf_model):
        _proof.compare(hf_model, model, family.task)
    return model


def _opened(folder: Path) -> Decoder:
    """Model in a folder. One with a modeling file of ours is read here, so that none of its code is run."""
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
    task = AUTO[family_named(text.model_type).task]
    hf_model = _folder.load(base, task, inner=None if text is config else text)
    if base != folder:
        tokens = _proof.some_tokens(hf_model.get_input_embeddings().weight)
        _adapters.merge(folder, hf_model, lambda: _proof.logits(hf_model, tokens, family_named(text.model_type).task))
    return hf_model


@contextmanager
def _named(*folders: Path) -> Iterator[None]:
    """Errors that name the config of the last folder, unless they name a file in one of them."""
    try:
        yield
    except SpecError as error:
        named = any(str(folder) in error.reason for folder in folders)
        reason = error.reason if named else f"{error.reason} ({folders[-1] / 'config.json'})"
        raise UnsupportedError(error.path, reason) from error


def base_of(folder: Path) -> Path:
    """The folder itself, or that of the base where it holds an adapter of peft. Raises UnsupportedError."""
    return _adapters.base_of(folder) if (folder / _adapters.CONFIG).is_file() else folder


def spec_of(folder: str | Path) -> ModelSpec:
    """Spec of the checkpoint in a local folder. Reads its config alone. Raises UnsupportedError."""
    base = base_of(Path(folder))
    if _remote.is_one(base):
        return _remote.spec_of(base)
    with _named(Path(folder), base):
        config = _wrappers.text_config(_folder.config_of(base), families())
        task = AUTO[family_named(config.model_type).task]
        hf_model = _folder.without_weights(config, task)
        if base != Path(folder):
            _adapters.lora_config(Path(folder))
            if _adapters.unties(Path(folder), hf_model):
                config.tie_word_embeddings = False
                hf_model = _folder.without_weights(config, task)
        return _understood(hf_model)[2]


def save_adapters(
    model: Decoder, adapters: Mapping[str, _adapters.LowRankFactors], alpha: float, folder: str | Path
) -> str:
    """Write low-rank adapters of a model for peft in `folder`, and the model for transformers in `folder/base`.

    Args:
        model: as it is without them.
        adapters: A: (r, in) and B: (out, r) by the name of our matrix, `blocks.0.mixer.q`; each adds (α/r)·B·A.

    Returns:
        The `model_type` of the base: `ablate` where no family expresses it, and the base has a modeling file of ours.

    Raises:
        UnsupportedError: a matrix of ours is none of theirs.
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
    """The `model_type` that `to_hf` gives a model, or initial values of a spec; None and the reason where no family of
    transformers expresses it."""
    spec, remembered = (model, None) if isinstance(model, ModelSpec) else (model.spec, model.origin)
    try:
        return str(_first_that_fits(spec, list(_candidates(spec, remembered, None)))[1].model_type), ""
    except UnsupportedError as error:
        return None, str(error)


def _understood(hf_model: Any) -> tuple[Family, Config, ModelSpec]:
    """Family, config and spec of a transformers model. Raises UnsupportedError."""
    transformers = transformers_module()
    model_type = hf_model.config.model_type
    if (text := _wrappers.text_config(hf_model.config, families())) is not hf_model.config:
        raise UnsupportedError("", f"{model_type} holds a {text.model_type}: save it and convert the folder")
    family = family_named(model_type)
    expected = getattr(transformers, CLASSES[family.task])[transformers.CONFIG_MAPPING[model_type]]
    if not isinstance(hf_model, expected):
        raise UnsupportedError("", f"{type(hf_model).__name__} cannot be converted, only {expected.__name__}")
    config = Config(hf_model.config, _is_tied(hf_model) if family.says_tied else None)
    spec = _spec(family, config)
    used = _proof.read_by(type(hf_model), type(hf_model.config))
    _proof.warn_of(config.finish(used), model_type)
    return family, config, spec


def to_hf(model: Decoder, family: str | None = None) -> Any:
    """The transformers model that computes the same, with weights of its own, in evaluation mode.

    family: a `model_type` of transformers; null for the one that the model came from, with the config that it had, or
    else the first that can express it. Raises UnsupportedError, which says what stands in the way.
    """
    transformers = transformers_module()
    chosen, config = _first_that_fits(model.spec, list(_candidates(model.spec, model.origin, family)))
    config.dtype = model.embedding.weight.dtype  # what is computed and not loaded is of it too
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
    """Spec equivalent to the config, unless no spec can express it, such as dropout of 1."""
    family.ignore(config)
    try:
        return parse(family.spec(config))
    except UnsupportedError:
        raise
    except SpecError as error:
        raise UnsupportedError(error.path, error.reason) from None


def _is_tied(hf_model: Any) -> bool:
    """Whether the head is the token table, whatever the config says."""
    return hf_model.get_output_embeddings().weight is hf_model.get_input_embeddings().weight


Candidate = tuple[str, Family, Callable[[], ConfigJson]]
"""A `model_type`, its family, and how to get a config's arguments, which may raise."""


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
    """The first family with a config that means this very architecture."""
    obstacles: list[tuple[int, str]] = []
    for name, family, arguments in candidates:
        try:
            with _folder.quiet():  # which warns of defaults that are no part of the architecture
                config, differences = _try(spec, name, family, NO_TOKENS | arguments())
        except (ValueError, KeyError, StrictDataclassError) as error:  # also what configs of transformers raise
            obstacles.append((1000, f"{name}: {error}"))
            continue
        if not differences:
            return family, config
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        obstacles.append((len(differences), f"{name}, which differs in {'; '.join(differences[:3])}{more}"))
    nearest = min(obstacles)[1]
    if len(candidates) == 1:
        raise UnsupportedError("", f"cannot be expressed as {nearest}")
    raise UnsupportedError("", f"no family of transformers expresses this model; the nearest is {nearest}")


def _try(spec: ModelSpec, name: str, family: Family, arguments: ConfigJson) -> tuple[Any, list[str]]:
    """A config, and where the architecture that it means differs from `spec`."""
    arguments = {key: value for key, value in copy.deepcopy(arguments).items() if key != "model_type"}
    config = transformers_module().AutoConfig.for_model(name, **arguments)
    tied = spec.tie_embeddings if family.says_tied else None
    return config, _differences(_spec(family, Config(config, tied)), spec)


def _differences(candidate: ModelSpec, wanted: ModelSpec) -> list[str]:
    """Where the resolved architectures differ."""
    theirs, ours = (dict(_leaves(spec)) for spec in (candidate, wanted))
    return [
        f"{path}: {ours[path]}" + (f", not {theirs[path]}" if path in theirs else "") if path in ours else f"no {path}"
        for path in [*ours, *(path for path in theirs if path not in ours)]
        if ours.get(path) != theirs.get(path)
    ]


def _leaves(spec: ModelSpec) -> Iterator[tuple[str, Any]]:
    """Settings that determine how the model computes, by path."""
    computation = spec.computation()
    for stack in (computation, computation.get("encoder", {})):
        if "layers" in stack:
            stack["layers"] = {str(i): layer for i, layer in enumerate(stack["layers"])}
    return flatten(computation)
