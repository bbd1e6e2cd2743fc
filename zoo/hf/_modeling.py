"""A model of ablate for transformers. `ablate export` copies this file into folders that hold models which no family of
transformers expresses; `AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True)` then runs it.

It defines no architecture: config.json has the spec, and the package ablate builds the model of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

try:  # transformers would name a package called zoo, which is another
    import zoo
    from zoo.model import Decoder
except ImportError as error:
    raise ImportError("this model is built by the package ablate, which is not installed here") from error


class AblateConfig(PreTrainedConfig):
    """`spec` is the architecture, as `zoo.parse` reads it."""

    model_type = "ablate"

    def __init__(self, spec: dict[str, object] | None = None, **settings: Any) -> None:
        self.spec = spec or {}
        super().__init__(**settings)


class AblateForCausalLM(PreTrainedModel, GenerationMixin):
    """Generates without a cache: every new token reads the whole text again. `zoo.from_hf(DIR)` has one."""

    config_class = AblateConfig
    base_model_prefix = "model"
    _is_stateful = True  # no cache that could be cut back, as assisted generation would
    _tied_weights_keys: Any = None

    def __init__(self, config: AblateConfig) -> None:
        super().__init__(config)
        self.model = Decoder(zoo.parse(config.spec))
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Weights come from the folder."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def get_input_embeddings(self) -> torch.nn.Module:
        embedding: torch.nn.Module = self.model.embedding
        return embedding

    def prepare_inputs_for_generation(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> dict[str, Tensor | None]:
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> CausalLMOutput:
        """input_ids: (B, T) → logits: (B, T, V). attention_mask: (B, T), zero where a row is padded at either side."""
        logits = self.model(input_ids, left_pad=_left_pad(attention_mask))
        loss = None if labels is None else self.loss_function(logits, labels, vocab_size=logits.shape[-1])
        return CausalLMOutput(loss=loss, logits=logits[:, -logits_to_keep:] if logits_to_keep else logits)


def _left_pad(mask: Tensor | None) -> Tensor | None:
    """(B,): how many tokens of each row are padding at its left. At its right it changes nothing before it."""
    if mask is None or bool(mask.all()):
        return None
    if mask.dim() != 2:
        raise ValueError(f"expected an attention mask of (batch, tokens), not of shape {tuple(mask.shape)}")
    text = mask.bool().int()
    starts = text.diff(dim=1, prepend=torch.zeros_like(text[:, :1])) > 0
    if bool(starts.sum(dim=1).gt(1).any()):
        raise ValueError("an attention mask may leave out tokens at the ends of a row only")
    first = text.argmax(dim=1)
    return first if bool(first.any()) else None
