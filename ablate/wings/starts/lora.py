"""Low-rank adapters: a frozen matrix W becomes W + (α/r)·B·A, whose update has rank r.

Hu et al. 2021, arXiv:2106.09685. A: (r, in) starts as U(−1/√in, 1/√in), B: (out, r) at zero, as in peft, so training
starts from the function that W computes. Nothing else is trained. After the last step the adapters are merged into W,
so that the model costs what it did.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from ablate.training.weights import Addition, PartSpec
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.errors import SpecError, did_you_mean
from zoo.ffns._routing import LinearRouter
from zoo.init import ExpertLinear, Linear, generator
from zoo.spec import ModelSpec

FILE = "adapters.safetensors"


class LoraSpec(PartSpec):
    """Low-rank adapters: `{rank: 8, alpha: 16, matrices: [mixer, ffn], dropout: 0}`."""

    setting: ClassVar[str] = (
        "Train low-rank adapters of frozen weights, which the arm must `start` from: `{rank: 8, alpha: 16}`; null for"
        " training all weights."
    )

    rank: PositiveInt = 8
    """r: inner width of an adapter, A: (r, in) and B: (out, r)."""
    alpha: PositiveFloat = 16.0
    """The update is multiplied by alpha / rank."""
    matrices: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] = ("mixer", "ffn")
    """Matrices that have adapters: all of every block's `mixer` or `ffn`, or some by name (`q`, `v`, `down`)."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate of the input of A, while training."""

    def build(self, model: zoo.Decoder, seed: int) -> Adapters:
        return Adapters(model, self, seed)

    def flops_change(self, model: ModelSpec) -> float:
        """Mostly negative.

        A frozen matrix W: (out, in) saves its own gradient, 2·out·in per token. Its adapter takes 2·r·(in + out)
        forward and twice that backward. Gradients with respect to the inputs of layers are counted throughout, although
        none is needed below the first adapter.
        """
        return _flops_change(json.dumps(model.dump()), self)


class LoraUpdate(nn.Module):
    """x: (..., in) → (α/r)·B·A·x: (..., out)."""

    def __init__(self, spec: LoraSpec, of: Linear) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(spec.rank, of.in_features, device=of.weight.device))
        self.up = nn.Parameter(torch.zeros(of.out_features, spec.rank, device=of.weight.device))
        self.roles = {"down": "input", "up": "output"}
        self.scale, self.dropout = spec.alpha / spec.rank, spec.dropout

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(x, self.dropout, self.training)
        return F.linear(F.linear(x, self.down), self.up) * self.scale


class Adapters(Addition):
    """Adapters of a model whose own weights are frozen. They act through forward hooks, so that the model's parameter
    names and state stay the same."""

    def __init__(self, model: zoo.Decoder, spec: LoraSpec, seed: int) -> None:
        """Freezes the model. Raises SpecError if `spec` names a matrix that it does not have."""
        super().__init__()
        self._model = [model]  # in a list, so that it is not registered as a submodule
        model.requires_grad_(False)
        self.names = list(matrices(model, spec))
        self.layers = nn.ModuleList(LoraUpdate(spec, model.get_submodule(name)) for name in self.names)  # type: ignore[arg-type]
        self._hooks = [self._attach(model.get_submodule(name), layer) for name, layer in self._each()]
        with torch.no_grad():
            for name, layer in self._each():
                bound = 1 / math.sqrt(layer.down.shape[1])
                drawn = torch.rand(layer.down.shape, generator=generator(seed, f"{name}.lora"), device="cpu")
                layer.down.copy_((2 * drawn - 1) * bound)

    def _each(self) -> Iterator[tuple[str, LoraUpdate]]:
        return zip(self.names, self.layers, strict=True)  # type: ignore[arg-type]

    def _attach(self, module: nn.Module, layer: LoraUpdate) -> Any:
        def added(module: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            layer.train(module.training)
            whole: Tensor = out + layer(inputs[0])
            return whole

        return module.register_forward_hook(added)

    def tensors(self) -> dict[str, Tensor]:
        """A and B by the name of the matrix: `blocks.0.mixer.q.down`, `blocks.0.mixer.q.up`."""
        pairs = ((f"{name}.{part}", getattr(layer, part)) for name, layer in self._each() for part in ("down", "up"))
        return {name: value.detach() for name, value in pairs}

    @torch.no_grad()
    def merge(self) -> None:
        """Add the adapters to the model's weights, and remove the hooks."""
        for name, layer in self._each():
            self._model[0].get_parameter(f"{name}.weight").add_(layer.up @ layer.down, alpha=layer.scale)
        for hook in self._hooks:
            hook.remove()

    def save(self, folder: Path) -> None:
        save_file({name: value.contiguous() for name, value in self.tensors().items()}, folder / FILE)


def saved_adapters(folder: Path) -> dict[str, Tensor]:
    """Read the adapters that `Adapters.save` wrote."""
    return load_file(folder / FILE)


def matrices(model: nn.Module, spec: LoraSpec) -> Iterator[str]:
    """Names of the matrices that get adapters. Raises SpecError for a name that no matrix has."""
    known: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if name.startswith("blocks.") and isinstance(module, Linear):
            _, _, *path = name.split(".")
            for word in {path[0], path[-1]}:
                known.setdefault(word, []).append(name)
    for word in spec.matrices:
        if word not in known:
            hint = did_you_mean(word, known) or f": one of {', '.join(sorted(known))}"
            raise SpecError("train.lora.matrices", f"no block has a matrix '{word}'{hint}")
    found = {name for word in spec.matrices for name in known[word]}
    yield from (name for name, _ in model.named_modules() if name in found)


def check_lora(model: ModelSpec, spec: LoraSpec) -> None:
    """Raise SpecError if a model cannot have these adapters. A part declares `Operation.LORA` if
    `LoraSpec.flops_change` covers all of its weights whose gradients are saved by freezing."""
    for part in unsupported(model, Operation.LORA):
        raise SpecError(
            "train.lora", f"does not support {part}: FLOPs of training with adapters are not counted for it"
        )
    with torch.device("meta"):
        list(matrices(zoo.Decoder(model), spec))


@lru_cache(maxsize=256)
def _flops_change(model: str, spec: LoraSpec) -> float:
    resolved = zoo.parse(json.loads(model))
    with torch.device("meta"):
        built = zoo.Decoder(resolved)
    ends = [part for part in (built.project_in, built.project_out, built.transform) if part is not None]
    spared = resolved.vocab_size * resolved.table_width + sum(_products(part) for part in ends)
    for block, layer in zip(built.block_of_each, resolved.layers, strict=True):
        spared += _products(built.blocks[block], getattr(layer.ffn, "top_k", 1))
    added = 0
    for name in matrices(built, spec):
        layers = built.block_of_each.count(int(name.split(".")[1]))  # more than one if layers share a block
        added += layers * spec.rank * sum(built.get_parameter(f"{name}.weight").shape)
    return 6.0 * added - 2.0 * spared  # adapters: 2 forward + 4 backward per entry; frozen entries save 2


def _products(part: nn.Module, top_k: int = 1) -> float:
    """Number of entries of all matrices of a part that multiply a token."""
    found = 0.0
    for module in part.modules():
        if isinstance(module, ExpertLinear):
            found += module.weight.numel() * top_k / module.experts
        elif isinstance(module, Linear | LinearRouter):
            found += module.weight.numel()
    return found


PARTS = {"lora": LoraSpec}
