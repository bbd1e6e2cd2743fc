"""Low-rank adapters (Hu et al. 2021, arXiv:2106.09685) as peft stores them: W + (α/r)·B·A, A: (r, in), B: (out, r)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from zoo.checkpoint import read_json
from zoo.errors import SpecError, UnsupportedError
from zoo.hf._pairs import Pair

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
PLAIN = {"peft_type": "LORA", "bias": "none", "use_dora": False, "modules_to_save": None, "lora_bias": False}
"""Settings that other values would give another meaning to an adapter."""

LowRank = tuple[Tensor, Tensor]
"""A and B."""


def base_of(folder: Path) -> Path:
    """The checkpoint that the adapter in a folder belongs to. Raises UnsupportedError.

    Where the folder that it names is gone, this is `base`, beside the adapter: ours are written so, and may be moved.
    """
    name = _config(folder).get("base_model_name_or_path")
    named = [folder / str(name), Path(str(name))] if name else []
    found = next((path for path in (*named, folder / "base") if path.is_dir()), None)
    if found is None:
        raise UnsupportedError("base_model_name_or_path", f"{folder / CONFIG}: there is no folder {name}")
    return found.resolve()


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        found = read_json(path)
    except (OSError, SpecError) as error:
        raise UnsupportedError("", f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise UnsupportedError("", f"{path}: expected a map")
    for key, plain in PLAIN.items():
        if found.get(key, plain) != plain:
            raise UnsupportedError(key, f"{found[key]!r} in {path} cannot be merged, only {plain!r}")
    return dict(found)


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():  # a pipe would wait for whoever writes to it
        raise UnsupportedError("", f"{path} is not a regular file")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UnsupportedError("", f"{path}: {error}") from error


@torch.no_grad()
def merge(folder: Path, hf_model: nn.Module) -> None:
    """Add the adapter in a folder to the weights of its base. Raises UnsupportedError for a tensor without a place."""
    config, tensors = _config(folder), _tensors(folder / WEIGHTS)
    for key in tensors:
        match = re.fullmatch(rf"{re.escape(PREFIX)}(.+)\.lora_([AB])\.weight", key)
        if match is None:
            raise UnsupportedError(key, f"a tensor of {folder / WEIGHTS} that is no A or B of a matrix")
        if match[2] == "A":
            module = hf_model.get_submodule(match[1])
            down, up = tensors[key].float(), tensors[key.replace("lora_A", "lora_B")].float()
            change = _scale(config, match[1], len(down)) * up @ down
            weight = module.get_parameter("weight")
            weight.add_(change.mT if _is_transposed(module) else change)


def _scale(config: Mapping[str, Any], module: str, rank: int) -> float:
    """α/r, or α/√r with rank-stabilised adapters (Kalajdzievski 2023, arXiv:2312.03732)."""
    patterns = (config.get("alpha_pattern") or {}).items()
    own = (alpha for pattern, alpha in patterns if re.fullmatch(rf"(.*\.)?({pattern})", module))
    alpha = float(next(own, config["lora_alpha"]))
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _is_transposed(module: nn.Module) -> bool:
    """Whether its matrix is (in, out), as GPT-2's are."""
    return type(module).__name__ == "Conv1D"


def save(
    folder: Path, hf_model: nn.Module, pairs: Iterator[Pair], adapters: Mapping[str, LowRank], alpha: float, base: str
) -> None:
    """Write adapters of our matrices, by name (`blocks.0.mixer.q`), for the model of transformers that `base` holds.

    Several of our matrices that lie side by side in one of theirs become one adapter of the sum of their ranks.
    Raises UnsupportedError where one is a part of theirs that no adapter can have.
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
        **PLAIN,
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


def _side_by_side(parts: list[LowRank | None], pair: Pair, module: nn.Module) -> LowRank:
    """A and B of their matrix: the A below one another, and each B in columns of its own, zero where a part has none.

    [B₁ 0; 0 B₂] [A₁; A₂] = [B₁A₁; B₂A₂], which `pair` may then put in another order of rows.
    """
    weight = getattr(module, "weight", None)
    if weight is None:
        raise UnsupportedError(pair.ours[0], f"an adapter of it is none of {', '.join(pair.theirs)}")
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
        raise UnsupportedError(pair.ours[0], f"an adapter of it cannot be one of {pair.theirs[0]}")
    return down, up
