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
"""Task of a family's models; transformers has an auto class for each."""

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
"""transformers' names of auto classes and of model mappings, keyed by task."""


class Family(ABC):
    """Conversion of configs to specs and of specs to configs, and correspondence of tensors."""

    model_types: ClassVar[tuple[str, ...]]
    """Values of `config.model_type`."""
    buffers: ClassVar[tuple[str, ...]] = ("*.rotary_emb.inv_freq",)
    """Name patterns of tensors in a state dict that are not weights but computed from the config."""
    ignored: ClassVar[tuple[str, ...]] = ()
    """Config keys without a meaning for its models, in addition to those of its base classes."""
    task: ClassVar[Task] = "causal"
    says_tied: ClassVar[bool] = False
    """Whether configs claim that the head is tied to the token table even if it is not."""
    preference: ClassVar[int] = 1
    """Rank among the families that can express a model: the smallest is chosen."""

    @classmethod
    def ignore(cls, config: Config) -> None:
        """Mark the keys in `ignored`, of this class and its bases, as read."""
        for family in cls.__mro__:
            config.ignore(*vars(family).get("ignored", ()))

    @abstractmethod
    def spec(self, config: Config) -> SpecJson:
        """Data for `zoo.parse`. Raises UnsupportedError for an option without a counterpart."""

    @abstractmethod
    def config(self, spec: ModelSpec) -> ConfigJson:
        """Arguments of the config class for a model that may or may not be of this family.

        Callers compare `spec(config(spec))` with the spec, so settings that the family cannot express need no check
        here. Raises UnsupportedError only if there is no config at all.
        """

    @abstractmethod
    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        """Pairs that contain every parameter of both models once."""
