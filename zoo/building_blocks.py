"""Building blocks for mixers, feed-forward layers, norms and features of your own: one place to import them from.

The base classes of features are in `zoo.features` and `zoo.block_features`.

docs/building_blocks.md has a table of them; `ablate zoo NAME` shows the signature and documentation of each.

Modules whose names begin with `_` may change; names exported here stay, and keep their meaning.
"""

from __future__ import annotations

from zoo.attend import attend
from zoo.attending.visible import Scoring, Visible
from zoo.caching.cache import LayerCache, TokenCache, kept_by
from zoo.caching.parts import PartsCache
from zoo.caching.states import StateCache, TokenStateCache
from zoo.compatibility.traits import (
    ALL_BUT_TRANSFER,
    BY_TOKEN,
    EVERY_OPERATION,
    NONE,
    OF_MODULES,
    Ground,
    Grounds,
    Operation,
    Operations,
)
from zoo.conv import ShortConv, TokenShift, conv_cost, on_text
from zoo.errors import SpecError, UnsupportedError
from zoo.ffns import Ffn, FfnLayer
from zoo.ffns._dense import Wide
from zoo.init import Linear
from zoo.kernels.precision import in_float32
from zoo.mixers import Mixer, MixerLayer
from zoo.mixers._decay import Decay
from zoo.mixers._delta import DeltaCost, DPLRCost, delta_scan, dplr_scan, product_scan
from zoo.mixers._diagonal import DiagonalCost, diagonal_scan, diagonal_states
from zoo.mixers._heads import NormPerHead, split
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer, Stateful, StatefulLayer, check_chunk, check_width, unit
from zoo.mixers._scan import STATE, ScanCost, ScanCosts, scan
from zoo.norms import Norm
from zoo.settings.axis import Choice, Examples, number
from zoo.settings.field_tags import Features, HeadFeatures, Heads, Supports, ValuesInTests
from zoo.site import ForwardPass, Keys, LayerSite, PartCost, attention_cost, matmul_cost, mean_keys

__all__ = [
    "ALL_BUT_TRANSFER",
    "BY_TOKEN",
    "EVERY_OPERATION",
    "NONE",
    "OF_MODULES",
    "STATE",
    "Choice",
    "DPLRCost",
    "Decay",
    "DeltaCost",
    "DiagonalCost",
    "Examples",
    "Features",
    "Ffn",
    "FfnLayer",
    "ForwardPass",
    "Ground",
    "Grounds",
    "HeadFeatures",
    "Heads",
    "Keys",
    "LayerCache",
    "LayerSite",
    "Linear",
    "LinearHeads",
    "LinearHeadsLayer",
    "Mixer",
    "MixerLayer",
    "Norm",
    "NormPerHead",
    "Operation",
    "Operations",
    "PartCost",
    "PartsCache",
    "ScanCost",
    "ScanCosts",
    "Scoring",
    "ShortConv",
    "SpecError",
    "StateCache",
    "Stateful",
    "StatefulLayer",
    "Supports",
    "TokenCache",
    "TokenShift",
    "TokenStateCache",
    "UnsupportedError",
    "ValuesInTests",
    "Visible",
    "Wide",
    "attend",
    "attention_cost",
    "check_chunk",
    "check_width",
    "conv_cost",
    "delta_scan",
    "diagonal_scan",
    "diagonal_states",
    "dplr_scan",
    "in_float32",
    "kept_by",
    "matmul_cost",
    "mean_keys",
    "number",
    "on_text",
    "product_scan",
    "scan",
    "split",
    "unit",
]
