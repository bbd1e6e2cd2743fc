"""The language model of Llama 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import BIAS, WIDTH, Config, ConfigJson, Keys
from zoo.hf._family import Pair, fused, same, transposed
from zoo.hf._layered import Layered
from zoo.hf._layers import FULL, attention, turns, types_of
from zoo.hf._rope_by_layer import SomeRoPE
from zoo.hf.mistral import Mixtral
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.edits import SpecJson
from zoo.sparsities.chunked import Chunked
from zoo.spec import ModelSpec

CHUNKED, FAR = "chunked_attention", "far"


class Llama4(SomeRoPE, Layered):
    """Chunked attention with RoPE in most layers, full attention without positions in the others; routing weights scale
    the experts' input. Meta 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence."""

    model_types: ClassVar[tuple[str, ...]] = ("llama4_text",)
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    mixer_keys: ClassVar[Keys] = {**Layered.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {"intermediate_size_mlp": WIDTH}
    experts_class: ClassVar[type[MoE]] = DeepSeekMoE
    expert_fixed: ClassVar[SpecJson] = {
        "kind": "deepseek_moe",
        "shared_experts": 1,
        "weights_on": "input",
        "normalise": False,
        "bias_rate": None,
        "balance_loss": 0.0,
    }
    expert_keys: ClassVar[Keys] = Mixtral.expert_keys
    ffn_name: ClassVar[str] = "feed_forward"
    shared_name: ClassVar[str] = "shared_expert"

    def spec(self, config: Config) -> SpecJson:
        config.ignore("no_rope_layer_interval", "interleave_moe_layer_step")  # they set defaults of lists
        config.ignore("output_router_logits", "router_aux_loss_coef", "for_llm_compressor")
        config.only("router_jitter_noise", 0.0)
        return super().spec(config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        rotary = config["no_rope_layers"]  # 1 where there is RoPE, despite the name
        kinds = zip(types_of(config, CHUNKED), rotary, strict=True)
        return [[CHUNKED] * (kind == CHUNKED) + [FAR] * (not turned) for kind, turned in kinds]

    def sparse(self, config: Config) -> list[bool]:
        return [i in config["moe_layers"] for i in range(config["num_hidden_layers"])]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        chunk = config["attention_chunk_size"]
        if CHUNKED in config["layer_types"] and chunk is None:
            raise UnsupportedError("attention_chunk_size", "must be set for layers with chunked attention")
        edits = super().edits(config)
        coefficient, floor = float(config["attn_scale"]), int(config["floor_scale"])
        tuned = {"coefficient": coefficient, "floor": floor} if config["attn_temperature_tuning"] else None
        plain = {"mixer.qk_norm": None, "mixer.qk_norm_after_position": False}
        without_positions = {"mixer.position": "nope", "mixer.temperature": tuned, **plain}
        return {**edits, CHUNKED: {"mixer.sparsity": {"kind": "chunked", "chunk": chunk}}, FAR: without_positions}

    def mixer(self, config: Config) -> SpecJson:
        norm = {"kind": "rmsnorm", "eps": config["rms_norm_eps"], "gain": False} if config["use_qk_norm"] else None
        return {**super().mixer(config), "qk_norm": norm, "qk_norm_after_position": norm is not None}

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixers = [attention(layer) for layer in spec.layers]
        chunks = {mixer.sparsity.chunk for mixer in mixers if isinstance(mixer.sparsity, Chunked)}
        found = next((mixer.temperature for mixer in mixers if mixer.temperature is not None), None)
        tuned = {} if found is None else {"attn_scale": found.coefficient, "floor_scale": found.floor}
        return {
            **super().config(spec),
            "attn_temperature_tuning": found is not None,
            **tuned,
            "layer_types": [FULL if mixer.sparsity is None else CHUNKED for mixer in mixers],
            "no_rope_layers": [int(turns(layer)) for layer in spec.layers],
            **({"attention_chunk_size": min(chunks)} if chunks else {}),
        }

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"moe_layers": [i for i, there in enumerate(sparse) if there]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "use_qk_norm": isinstance(attention(layer).qk_norm, RMSNorm)}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        yield same(f"{ours}.router.weight", f"{theirs}.router.weight")
        wide = [f"{ours}.experts.gate.weight", f"{ours}.experts.up.weight"]
        yield transposed(fused(wide, f"{theirs}.experts.gate_up_proj", [moe.width] * 2, dim=1))
        yield transposed(same(f"{ours}.experts.down.weight", f"{theirs}.experts.down_proj"))
        yield from self.shared_weights(moe, f"{ours}.shared", f"{theirs}.{self.shared_name}")
