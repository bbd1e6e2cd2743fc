"""Falcon Mamba."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf.mamba import Mamba
from zoo.mixers.mamba import Mamba as Mixer
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class FalconMamba(Mamba):
    """Mamba with norms without gains of what Δ, b and c are made of. Zuo et al. 2024, arXiv:2410.05355."""

    model_types: ClassVar[tuple[str, ...]] = ("falcon_mamba",)

    def mixer(self, config: Config) -> SpecJson:
        norm = {"kind": "rmsnorm", "eps": config["mixer_rms_eps"], "gain": False}
        return {**super().mixer(config), "part_norm": norm}

    def config(self, spec: ModelSpec) -> ConfigJson:
        norm = expect(spec.layers[0].mixer, Mixer, "mixer").part_norm
        return {**super().config(spec), "mixer_rms_eps": getattr(norm, "eps", 1e-6)}
