"""Long short-term memory."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.init import Linear
from zoo.mixers import Mixer, MixerLayer
from zoo.settings.axis import number
from zoo.settings.field_tags import Features
from zoo.site import ForwardPass, LayerSite, PartCost

OUTPUT, CELL = "output", "cell"
"""Cache names of h and c."""


class LSTM(Mixer):
    """out = W_o h_t, h_t = o ⊙ tanh(c_t), c_t = f ⊙ c_{t−1} + i ⊙ g, i, f, o = σ(z), g = tanh(z), z = W x_t + R h_{t−1}
    + b: (I) for each. Hochreiter & Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735, with forget gates of
    Gers et al. 2000, https://doi.org/10.1162/089976600300015015.

    Gates read the previous output, so tokens are computed sequentially, in training too, with many small products. The
    biases of forget gates start at 1 (Jozefowicz et al. 2015, https://proceedings.mlr.press/v37/jozefowicz15.html), all
    others at 0.
    """

    paired_examples: ClassVar[int | None] = 0
    kind: Literal["lstm"] = "lstm"
    supports: ClassVar[Operations] = OF_MODULES
    features: Features | None = None
    """I: features of output and cell; null for d_model."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(update={"features": self.features or d_model})

    def build(self, site: LayerSite) -> MixerLayer:
        return LSTMLayer(site.d_model, number(self.features))

    def cost(self, d_model: int, context: int) -> PartCost:
        features = number(self.features)
        read, recurrent = 5 * d_model * features, 4 * features**2
        # The first token of a text has no output before it to multiply.
        flops = 2.0 * read + 2.0 * recurrent * (context - 1) / context
        return PartCost.of(read + recurrent + 4 * features, flops)

    def cache_elements(self, capacity: int) -> int:
        return 2 * number(self.features)


class LSTMLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, d_model: int, features: int) -> None:
        super().__init__()
        self.features = features
        self.v = Linear(d_model, 4 * features, bias=True, role="input", values=True)
        self.v.initial = {"bias": torch.arange(4).eq(1).float().repeat_interleave(features)}
        self.recur = Linear(features, 4 * features, role="input")
        self.o = Linear(features, d_model, role="output")

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        shapes = {OUTPUT: (self.features,), CELL: (self.features,)}
        return StateCache.zeros(batch, shapes, self.o.weight, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        states = kept_by(self, cache, StateCache)
        read: Tensor = self.v(x)  # W x + b: (B, T, 4I)
        kind = torch.promote_types(read.dtype, torch.float32)
        output, cell = (None if states is None else states.read(name, kind) for name in (OUTPUT, CELL))
        outputs = []
        for t, token in enumerate(read.unbind(1)):
            z = token if output is None else token + self.recur(output.to(read.dtype))
            i, f, g, o = z.to(kind).chunk(4, dim=-1)
            cell = i.sigmoid() * g.tanh() + (0.0 if cell is None else f.sigmoid() * cell)
            output = o.sigmoid() * cell.tanh()
            if step.text is not None:  # padding would change the state through biases
                cell, output = (state * step.text[:, t, None] for state in (cell, output))
            outputs.append(output)
        if states is not None and cell is not None:
            states.write(OUTPUT, outputs[-1])
            states.write(CELL, cell)
        return self.o(torch.stack(outputs, dim=1).to(read.dtype))
