"""Multi-token prediction: modules that predict tokens further ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from zoo.block import Block
from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import Ground, Grounds, Operation, Operations
from zoo.errors import SpecError
from zoo.features import Feature, FeatureLayer, Model, Predicting, new_norm, norm_parameters
from zoo.features.encoder import MAX_LAYERS
from zoo.init import Linear
from zoo.loss import summed_loss
from zoo.settings.field_tags import Fact
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost


class MultiTokenPrediction(Feature):
    """Module k = 1 … depth predicts t_{i+k+1} at token i. DeepSeek V3, arXiv:2412.19437 §2.2.

    h^k = block(W [norm(h^{k−1}_i); norm(emb(t_{i+k}))]), with h⁰ the output of the last layer, a block of the last
    layer's kind, and the model's own embedding, final norm and head. The objective gains weight/depth · Σ_k L_k, where
    L_k is the sum of module k's losses divided by the number of the model's own targets. Forward passes do not run the
    modules, and of the decoders only `zoo.decode.lookahead` does.

    With `final_norm: own`, the head and the next module read h^k = norm_k(block(…)), and h⁰ is the stream after the
    model's final norm, as in the released weights of DeepSeek-V3 and Qwen3-Next.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.WHOLE_BLOCKS, Ground.CAUSAL})
    breaks: ClassVar[Grounds] = frozenset({Ground.ONE_END})
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})

    depth: Annotated[PositiveInt, Field(le=MAX_LAYERS)] = 1
    """Number of modules, which is the number of additional tokens predicted at each token."""
    weight: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.3
    """Weight of the modules' mean loss in the training objective."""
    final_norm: Literal["shared", "own"] = Field(default="shared", exclude_if=lambda whose: whose == "shared")
    """Norm before the head: `shared`, the model's final norm; `own`, one per module."""

    def check(self, model: Model) -> None:
        if model.layers[-1].mixer.borrows:
            raise SpecError("", "needs a last layer without reuse_kv: its modules are blocks like that layer")

    def build(self, model: Model) -> MtpModules:
        return MtpModules(self, model)

    def training_cost(self, model: Model, context: int, memory: int) -> PartCost:
        """Cost of all modules: module k runs on k tokens fewer than the text has."""
        total, d_model, last = PartCost(0), model.d_model, model.layers[-1]
        matrix, norms = 2 * d_model * d_model, (3 if self.final_norm == "own" else 2) * norm_parameters(model)
        for k in range(1, self.depth + 1):
            seen = max(0, context - k)
            block = last.cost(d_model, max(1, seen)) + last.training_cost(d_model, max(1, seen))
            part = block + matmul_cost(matrix + norms, matrix)
            work = replace(part, inactive=part.parameters) + replace(model.read_out, parameters=0)
            total += work.for_share(seen / context)
        return total

    def pass_flops(self, model: Model, context: int) -> float:
        return sum(model.layers[-1].mixer.pass_flops(context - k) for k in range(1, min(context, self.depth + 1)))


class MtpModules(FeatureLayer, nn.ModuleList):
    """The modules, numbered from 1 in formulas and from 0 in names: module k predicts t_{i+k+1} at token i."""

    name: ClassVar[str] = "mtp"
    shell: ClassVar[int] = 8
    reads_out: ClassVar[bool] = True

    def __init__(self, spec: MultiTokenPrediction, model: Model) -> None:
        super().__init__(MtpModule(spec, model, k) for k in range(spec.depth))
        self.spec = spec

    def objective(self, given: Predicting) -> Iterator[Tensor]:
        before, after = self.norms(given.norm)
        head, hidden, step = given.head_after(after), before(given.stream), given.step
        total = hidden.new_zeros((), dtype=torch.float32)  # Σ_k L_k before the division by `count`
        for k, module in enumerate(self, start=1):
            if k >= given.targets.shape[1]:
                break
            ahead = ForwardPass(step.index[k:], shared=step.shared, start=step.start + k, losses=step.losses)
            ahead.recorder, ahead.prefix = step.recorder, f"{self.name}.{k - 1}."
            ahead.tokens = None if step.tokens is None else step.tokens[:, k:]  # the ids behind embedded[:, k:]
            hidden, goals = module(hidden[:, :-1], given.embedded[:, k:], ahead), given.targets[:, k:]
            total = total + summed_loss(head, hidden, goals).objective
        yield self.spec.weight / self.spec.depth * (total / given.count)

    def norms(self, norm: nn.Module) -> tuple[nn.Module, nn.Module]:
        """Two norms made from the model's final norm: stream → h⁰, and h^k → input of the head."""
        own = self.spec.final_norm == "own"
        return (norm, nn.Identity()) if own else (nn.Identity(), norm)

    def gains_before_head(self) -> Iterator[str]:
        for k, module in enumerate(self):
            if hasattr(module.final_norm, "gain"):
                yield f"{self.name}.{k}.final_norm.gain"


class MtpModule(nn.Module):
    """hidden: h^{k−1}, embedded: emb(t_{i+k}), both (B, n, D) → h^k."""

    def __init__(self, spec: MultiTokenPrediction, model: Model, k: int) -> None:
        super().__init__()
        last = model.layers[-1]
        self.hidden_norm, self.token_norm = new_norm(model), new_norm(model)
        self.final_norm = new_norm(model) if spec.final_norm == "own" else None
        self.project = Linear(2 * model.d_model, model.d_model, role="input")
        self.block = Block(last, LayerSite(model.d_model, model.n_layers + k, model.n_layers))
        self.placement = last.norm_placement

    def forward(self, hidden: Tensor, embedded: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        joined = torch.cat((self.hidden_norm(hidden), self.token_norm(embedded)), dim=-1)
        stream: Tensor = self.placement.close(self.block(self.placement.open(self.project(joined)), step, cache))
        return stream if self.final_norm is None else self.final_norm(stream)

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return self.block.new_cache(batch, capacity, dtype, memory=0)
