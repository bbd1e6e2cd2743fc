"""Decoding: one file per method.

zoo.generate(model, prompts, 64, temperature=0.8, top_p=0.95)
zoo.generate(model, prompts, 4096, compile=True)
zoo.decode.beam_search(model, prompts, 64, beams=4)
zoo.decode.speculate(model, draft, prompts, 64)
zoo.decode.lookahead(model, prompts, 64)
"""

from __future__ import annotations

from zoo.decode.beam import Beams, BeamSearch, beam_search
from zoo.decode.compiled import compiled_step, roomy_cache
from zoo.decode.generate import generate, steps
from zoo.decode.lookahead import lookahead
from zoo.decode.sampling import NEVER, Sampling, Stop
from zoo.decode.speculative import Speculated, Speculation, speculate

__all__ = [
    "NEVER",
    "BeamSearch",
    "Beams",
    "Sampling",
    "Speculated",
    "Speculation",
    "Stop",
    "beam_search",
    "compiled_step",
    "generate",
    "lookahead",
    "roomy_cache",
    "speculate",
    "steps",
]
