"""An ablate model for transformers. `ablate export` copies this file into folders of models that no transformers family
can express; `AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True)` then runs it.

It defines no architecture: config.json holds the spec, from which the package ablate builds the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

try:  # transformers' own message would name zoo, an unrelated package
    import zoo
    from zoo.caching.cache import Cache
    from zoo.model import Decoder
    from zoo.site import Given
except ImportError as error:
    raise ImportError("this model needs the package ablate, which is not installed") from error


class AblateConfig(PreTrainedConfig):
    """`spec` is the architecture, as `zoo.parse` reads it."""

    model_type = "ablate"

    def __init__(self, spec: dict[str, object] | None = None, **settings: Any) -> None:
        self.spec = spec or {}
        super().__init__(**settings)


class AblateCache:
    """Cache of earlier tokens, which `generate` passes from step to step."""

    is_compileable = False

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: Cache | None = None

    def of(self, model: Decoder, batch: int) -> Cache:
        """The cache for `batch` rows, created in the first pass: the number of rows is not known before."""
        self.held = self.held or model.new_cache(batch, self.capacity)
        return self.held

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0 if self.held is None else self.held.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.held is not None:
            self.held.reorder(beam_idx)


class AblateForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = AblateConfig
    base_model_prefix = "model"
    _is_stateful = True  # assisted generation would have to crop the cache, which it cannot
    _tied_weights_keys: Any = None

    def __init__(self, config: AblateConfig) -> None:
        super().__init__(config)
        self.model = Decoder(zoo.parse(config.spec))
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Does nothing: weights come from the folder."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.embedding

    def _prepare_cache_for_generation(
        self,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, object],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> bool:
        if generation_config.cache_implementation is not None:
            raise ValueError("cache_implementation: not supported, since this model has its own cache")
        if generation_config.use_cache and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = AblateCache(max_cache_length)
        return True

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: AblateCache | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **_: Any,
    ) -> dict[str, Tensor | AblateCache | None]:
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        return {
            "input_ids": input_ids[:, seen:],
            "past_key_values": past_key_values,
            "attention_mask": attention_mask,
            "token_type_ids": None if token_type_ids is None else token_type_ids[:, seen:],
        }

    def forward(  # noqa: PLR0913, PLR0917 (arguments that transformers and peft give by name)
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        past_key_values: AblateCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """input_ids: (B, T) → logits: (B, T, V). Raises ValueError for arguments that the model cannot apply.

        Args:
            attention_mask: (B, T), zero at padding; with a cache (B, all tokens so far), with padding at the left only.
            position_ids: (B, T), accepted only if they number each row's tokens as the model does by itself.
            past_key_values: an `AblateCache`, which `generate` creates.
            logits_to_keep: the number of last tokens, or indices of tokens; 0 keeps all.
        """
        if input_ids is None or inputs_embeds is not None:
            raise ValueError("this model needs input_ids; inputs_embeds is not supported")
        if output_attentions or output_hidden_states:
            raise ValueError("this model returns neither attentions nor hidden states: see zoo.taps")
        if use_cache and past_key_values is None:
            raise ValueError("use_cache: give past_key_values=AblateCache(capacity), or call generate, which does")
        if labels is not None and not isinstance(logits_to_keep, Tensor) and logits_to_keep:
            raise ValueError("labels need the logits of all tokens: leave out logits_to_keep")
        start = 0 if past_key_values is None else past_key_values.get_seq_length()
        left_pad, right_pad = pads_of(attention_mask, start + input_ids.shape[1])
        _check_positions(position_ids, left_pad, start)
        given = self._given(input_ids, token_type_ids, right_pad)
        cache = None if past_key_values is None else past_key_values.of(self.model, len(input_ids))
        if cache is not None and right_pad is not None:
            raise ValueError("attention_mask: with a cache, pad rows at the left")
        hidden = self.model.hidden(input_ids, cache, None if start else left_pad, **given)
        if isinstance(logits_to_keep, Tensor):
            hidden = hidden[:, logits_to_keep]
        elif logits_to_keep:
            hidden = hidden[:, -logits_to_keep:]
        logits = self.model.read_out(hidden)
        loss = None if labels is None else self.loss_function(logits, labels, vocab_size=logits.shape[-1])
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)
        return output.to_tuple() if return_dict is False else output

    def _given(self, input_ids: Tensor, token_type_ids: Tensor | None, right_pad: Tensor | None) -> Given:
        """Further inputs of the model. Causal models need no `right_pad`: they do not see padding at the right."""
        given = Given()
        if right_pad is not None and self.model.spec.visible == "all":
            given["right_pad"] = right_pad
        if token_type_ids is not None and self.model.token_types is not None:
            given["token_types"] = token_type_ids
        elif token_type_ids is not None and bool(token_type_ids.any()):
            raise ValueError("token_type_ids: this model has no token types")
        return given


def pads_of(mask: Tensor | None, length: int) -> tuple[Tensor | None, Tensor | None]:
    """Numbers of padding tokens at the left and right of each row, (B,) each; None for none. Raises ValueError."""
    if mask is None or bool(mask.all()):
        return None, None
    if mask.dim() != 2 or mask.shape[1] != length:
        raise ValueError(f"attention_mask: must have the shape (batch, {length}), not {tuple(mask.shape)}")
    text = mask.bool().int()
    starts = text.diff(dim=1, prepend=torch.zeros_like(text[:, :1])) > 0
    if bool(starts.sum(dim=1).gt(1).any()):
        raise ValueError("attention_mask: tokens can be masked only at the ends of a row")
    left = text.argmax(dim=1)
    right = length - left - text.sum(dim=1)
    right = torch.where(text.any(dim=1), right, 0)  # a row of padding alone is read as text
    return (left if bool(left.any()) else None), (right if bool(right.any()) else None)


def _check_positions(position_ids: Tensor | None, left_pad: Tensor | None, start: int) -> None:
    """Raise ValueError unless the positions number the tokens of each row from 0, after its padding."""
    if position_ids is None:
        return
    places = torch.arange(position_ids.shape[1], device=position_ids.device) + start
    first = torch.zeros_like(position_ids[:, 0]) if left_pad is None else left_pad.to(position_ids.device)
    counted = places - first[:, None]
    if bool(((position_ids != counted) & (counted >= 0)).any()):
        raise ValueError("position_ids: must count the tokens of each row from 0, after its padding")
