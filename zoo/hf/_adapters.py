"""Low-rank adapters (Hu et al. 2021, arXiv:2106.09685) as peft stores them: W + (α/r)·B·A, A: (r, in), B: (out, r).

peft merges imported adapters, as it knows how each kind is initialised and scaled. This module writes our own."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from zoo.checkpoint import read_json
from zoo.errors import SpecError, UnsupportedError
from zoo.hf._family import Pair
from zoo.hf._folder import one_line
from zoo.hf._proof import near

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
PICKLED = "adapter_model.bin"
NAMES = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "inference_mode",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
        "task_type",
    }
)
"""Keys that do not affect what an adapter computes."""


REMEDY = "convert a model that peft has merged and saved"


def _any(value: object) -> bool:
    return True


ALLOWED: dict[str, Callable[[Any], bool]] = {
    "peft_type": lambda value: value == "LORA",
    # peft corrects the base by these initial values, which it can reproduce. Others depend on data or random numbers:
    # an adapter of `pissa_niter_4` loads with different weights each time.
    "init_lora_weights": lambda value: value in (True, False, None, "gaussian", "eva", "olora", "orthogonal", "pissa"),
    **dict.fromkeys(("r", "lora_alpha", "lora_dropout", "rank_pattern", "alpha_pattern", "use_rslora"), _any),
    **dict.fromkeys(("target_modules", "exclude_modules", "target_parameters", "fan_in_fan_out"), _any),
    **dict.fromkeys(("layers_to_transform", "layers_pattern", "modules_to_save", "ensure_weight_tying"), _any),
    **dict.fromkeys(("bias", "lora_bias", "use_dora", "trainable_token_indices"), _any),
}
"""Keys that peft applies, each with a test for values that merge exactly. Other keys must have their defaults."""

LowRankFactors = tuple[Tensor, Tensor]
"""A: (r, in) and B: (out, r)."""


def base_of(folder: Path) -> Path:
    """Folder of the base model of the adapter in `folder`. Raises UnsupportedError.

    If the folder that the config names is missing, this is `folder/base`: our adapters have it there, wherever moved.
    """
    name = _config(folder).get("base_model_name_or_path")
    named = [folder / str(name), Path(str(name))] if name else []
    found = next((path for path in (*named, folder / "base") if path.is_dir()), None)
    if found is None:
        raise UnsupportedError("base_model_name_or_path", f"{folder / CONFIG}: there is no folder {name}")
    return found.resolve()


def _config(folder: Path) -> Mapping[str, object]:
    path = folder / CONFIG
    try:
        found = read_json(path)
    except (OSError, SpecError) as error:
        raise UnsupportedError("", f"{path} cannot be read: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise UnsupportedError("", f"{path} must hold a JSON object, not {type(found).__name__}")
    return found


@torch.no_grad()
def merge(folder: Path, model: nn.Module, logits: Callable[[], Tensor]) -> None:
    """Merge the adapter in a folder into its base, as peft computes it.

    logits: computes the model's logits, which must agree before and after the merge. Raises UnsupportedError if they
    differ, or if peft cannot load the whole adapter.
    """
    peft, config, untied = _peft(), lora_config(folder), unties(folder, model)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the errors and the comparison below cover peft's warnings
        try:
            adapted = peft.PeftModel(model, config)
            loaded = adapted.load_adapter(str(folder), "default", torch_device="cpu")
        except (ValueError, RuntimeError, TypeError, LookupError, OSError, ImportError, SafetensorError) as error:
            raise UnsupportedError("", f"{folder}: peft cannot load it: {one_line(error)}") from error
        for what in ("missing from", "unexpected in"):
            if keys := sorted(getattr(loaded, f"{what.split()[0]}_keys")):
                raise UnsupportedError(keys[0], f"{what} {_weights_file(folder)} ({len(keys)} in total)")
        held = peft.get_peft_model_state_dict(adapted)
        if broken := next((name for name, value in held.items() if not value.isfinite().all()), None):
            raise UnsupportedError(broken, f"contains infinities or NaN in {_weights_file(folder)}")
        adapted.eval()
        beside = logits()
        if untied:
            _untie(model)
        adapted.merge_and_unload()
    if not near(logits(), beside):
        raise UnsupportedError(
            "", f"{folder}: cannot be converted, since the logits change when peft merges the adapter"
        )


def lora_config(folder: Path) -> Any:
    """peft's LoraConfig with the keys in `ALLOWED`. Raises UnsupportedError for other keys or values."""
    given, path = _config(folder), folder / CONFIG
    default = vars(_peft().LoraConfig())
    for key, value in given.items():
        if key in ALLOWED and not ALLOWED[key](value):
            raise UnsupportedError(key, f"{value!r} in {path} cannot be merged exactly: {REMEDY}")
        if key not in ALLOWED and key not in NAMES and value not in (default.get(key), None, False, {}, []):
            reason = f"{value!r} in {path} is not supported; only the default {default.get(key)!r} is"
            raise UnsupportedError(key, f"{reason}: {REMEDY}")
    try:
        known = {key: value for key, value in given.items() if key in ALLOWED and key in default and key != "peft_type"}
        return _peft().LoraConfig(**known, inference_mode=True)
    except (ValueError, TypeError) as error:
        raise UnsupportedError("", f"{path}: {one_line(error)}") from error


def _untie(model: Any) -> None:
    """Give the head, which peft may have wrapped, its own matrix before the adapter is merged into one of the two."""
    head = model.get_output_embeddings()
    inner = getattr(head, "base_layer", getattr(head, "original_module", head))
    inner.weight = nn.Parameter(inner.weight.detach().clone())
    model.config.tie_word_embeddings = False


def unties(folder: Path, model: nn.Module) -> bool:
    """Whether the head shares the token table in the base but not in the adapted model."""
    if not hasattr(model, "get_output_embeddings"):
        return False
    head, table = model.get_output_embeddings(), model.get_input_embeddings()  # type: ignore[operator]
    if head is None or head.weight is not table.weight:
        return False
    names = tuple(f"{PREFIX}{name}." for name, module in model.named_modules() if module in (head, table))
    return any(key.startswith(names) for key in _tensor_names(folder))


def _tensor_names(folder: Path) -> list[str]:
    path = _weights_file(folder)
    try:
        if path.suffix == ".bin":
            return list(torch.load(path, map_location="cpu", weights_only=True))
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (OSError, RuntimeError, EOFError, UnpicklingError, SafetensorError) as error:
        raise UnsupportedError("", f"{path} cannot be read: {one_line(error)}") from error


def _weights_file(folder: Path) -> Path:
    """The adapter's weight file. Raises UnsupportedError if there is none: peft would search the internet for it."""
    for name in (WEIGHTS, PICKLED):
        if (folder / name).is_file():
            return folder / name
    raise UnsupportedError("", f"{folder} has no {WEIGHTS}")


def _peft() -> ModuleType:
    try:
        import peft  # noqa: PLC0415 (an optional extra, and slow to import)
    except ImportError:
        raise ImportError("merging adapters needs peft: pip install peft") from None
    found: ModuleType = peft
    return found


def _is_transposed(module: nn.Module) -> bool:
    """Whether the module's matrix is stored as (in, out), as in GPT-2."""
    return type(module).__name__ == "Conv1D"


def save(
    folder: Path,
    hf_model: nn.Module,
    pairs: Iterator[Pair],
    adapters: Mapping[str, LowRankFactors],
    alpha: float,
    base: str,
) -> None:
    """Write adapters, keyed by zoo matrix (`blocks.0.mixer.q`), for the transformers model in the folder `base`.

    Adapters of matrices that transformers fuses into one become one adapter, whose rank is the sum of their ranks.
    Raises UnsupportedError for a matrix whose counterpart cannot have an adapter.
    """
    rank = len(next(iter(adapters.values()))[0])
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    transposed = False
    for pair in pairs:
        parts = [name.removesuffix(".weight") for name in pair.ours]
        if not any(part in adapters for part in parts):
            continue
        module = pair.theirs[0].removesuffix(".weight")
        found = hf_model.get_submodule(module) if len(pair.theirs) == 1 else nn.Identity()
        down, up = _side_by_side([adapters.get(part) for part in parts], pair, found)
        tensors |= {f"{PREFIX}{module}.lora_A.weight": down, f"{PREFIX}{module}.lora_B.weight": up}
        ranks[module] = len(down)
        transposed |= _is_transposed(found)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
    wider = {module: size for module, size in ranks.items() if size != rank}
    config = {
        "peft_type": "LORA",
        "bias": "none",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(ranks),
        "rank_pattern": wider,
        "alpha_pattern": {module: alpha * size / rank for module, size in wider.items()},
        "fan_in_fan_out": transposed,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")


def _side_by_side(parts: list[LowRankFactors | None], pair: Pair, module: nn.Module) -> LowRankFactors:
    """A and B of transformers' fused matrix: the parts' A are stacked, their B block-diagonal, zero for a part without.

    [B₁ 0; 0 B₂] [A₁; A₂] = [B₁A₁; B₂A₂], whose rows `pair` may then reorder.
    """
    weight = getattr(module, "weight", None)
    if weight is None:
        raise UnsupportedError(pair.ours[0], f"cannot have an adapter: its counterpart is {', '.join(pair.theirs)}")
    given = [part for part in parts if part is not None]
    rows = [len(value) for value in pair.read([weight.detach()])]
    width, rank = sum(len(down) for down, _ in given), 0
    ups = []
    for part, count in zip(parts, rows, strict=True):
        up = given[0][1].new_zeros(count, width)
        if part is not None:
            up[:, rank : rank + len(part[0])] = part[1]
            rank += len(part[0])
        ups.append(up)
    down, (up,) = torch.cat([down for down, _ in given]), pair.write(ups)
    up = up.mT if _is_transposed(module) else up
    if up.shape != (weight.shape[1 if _is_transposed(module) else 0], width):
        raise UnsupportedError(pair.ours[0], f"cannot have an adapter: its counterpart is {pair.theirs[0]}")
    return down, up
