"""What a family of transformers models has to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from zoo.hf._config import Config
from zoo.hf._weights import Pair
from zoo.spec import ModelSpec


class Family(ABC):
    """Configs to specs, specs to configs, and which tensors correspond."""

    model_types: ClassVar[tuple[str, ...]]
    """Values of `config.model_type`."""
    buffers: ClassVar[tuple[str, ...]] = ("*.rotary_emb.inv_freq",)
    """Patterns of tensors in a state dict that are not weights: computed from the config."""
    preference: ClassVar[int] = 1
    """Where several families express a model, the one with the smallest."""

    @abstractmethod
    def spec(self, config: Config) -> dict[str, Any]:
        """Data for `zoo.parse`. Raises UnsupportedError for an option without a counterpart."""

    @abstractmethod
    def config(self, spec: ModelSpec) -> dict[str, Any]:
        """Arguments of the config class for a model that may or may not be of this family.

        Only `spec(config(spec))` is believed: what a family cannot express need not be checked here, save what keeps it
        from naming a config at all, for which it raises UnsupportedError.
        """

    @abstractmethod
    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        """Every parameter of both sides, once."""
