"""Construction of a model, with initial values from `zoo.init` and small initial logits."""

from __future__ import annotations

import math
import warnings

from zoo.costs import refuse_impossible
from zoo.errors import SpecWarning
from zoo.init import UNNORMED, initialise, project
from zoo.model import Decoder
from zoo.spec import ModelSpec


def build(spec: ModelSpec, seed: int = 0) -> Decoder:
    """A model with initial values drawn by role (see `zoo.init`); the same seed gives the same values."""
    for caution in spec.cautions:
        warnings.warn(caution, SpecWarning, stacklevel=2)
    refuse_impossible(spec)
    model = Decoder(spec)
    factors: dict[str, float] = {}
    if model.head is None and spec.init.tied_head is not None:
        # A tied head's initial logits are kept small (see `zoo.init`) by a factor on the gains of norms that only the
        # head reads, or on the token table if the model's own norm has no such gain.
        norm = model.last_norm if model.transform is None else model.transform.norm
        gain = getattr(norm, "gain", None)
        name = next((name for name, each in model.named_parameters() if each is gain), "embedding.weight")
        ahead = (gain for part in model.parts for gain in part.gains_before_head())
        normed = norm is not None or spec.layers[-1].normalises_stream
        largest = spec.init.tied_head * (1.0 if normed and spec.block.norm.normalises else UNNORMED)
        factors = dict.fromkeys((name, *ahead), min(1.0, largest / (spec.logit_scale * math.sqrt(spec.table_width))))
    initialise(model, spec.init, spec.n_layers, seed, factors=factors)
    if model.encoder is not None:
        initialise(model.encoder, spec.init, model.encoder.spec.n_layers, seed, "encoder.")
    if spec.unit_weights:
        project(model)
    return model
