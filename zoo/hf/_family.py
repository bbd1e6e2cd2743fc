"""Interface of a family of transformers models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Literal

from zoo.hf._config import Config, ConfigJson
from zoo.hf._pairs import Pair
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

Task = Literal["causal", "masked", "sequence to sequence"]
"""Task of a family's models: transformers has a class for each."""

AUTO = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "sequence to sequence": "AutoModelForSeq2SeqLM",
}
CLASSES = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING",
    "sequence to sequence": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
}
"""Names in transformers by task."""


class Family(ABC):
    """Configs to specs, specs to configs, and which tensors correspond."""

    model_types: ClassVar[tuple[str, ...]]
    """Values of `config.model_type`."""
    buffers: ClassVar[tuple[str, ...]] = ("*.rotary_emb.inv_freq",)
    """Patterns of tensors in a state dict that are not weights: computed from the config."""
    ignored: ClassVar[tuple[str, ...]] = ()
    """Keys without a meaning for its models, beside those of the families it builds on."""
    task: ClassVar[Task] = "causal"
    says_tied: ClassVar[bool] = False
    """Whether configs say that the head is tied to the token table also where it is not."""
    preference: ClassVar[int] = 1
    """Where several families express a model, the one with the smallest."""

    @classmethod
    def ignore(cls, config: Config) -> None:
        """Pass over the keys that are `ignored`."""
        for family in cls.__mro__:
            config.ignore(*vars(family).get("ignored", ()))

    @abstractmethod
    def spec(self, config: Config) -> SpecJson:
        """Data for `zoo.parse`. Raises UnsupportedError for an option without a counterpart."""

    @abstractmethod
    def config(self, spec: ModelSpec) -> ConfigJson:
        """Arguments of the config class for a model that may or may not be of this family.

        Only `spec(config(spec))` is believed: what a family cannot express need not be checked here, save what keeps it
        from naming a config at all, for which it raises UnsupportedError.
        """

    @abstractmethod
    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        """Every parameter of both sides, once."""
