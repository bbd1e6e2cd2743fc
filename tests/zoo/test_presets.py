"""Published models: their size at full scale, what is said of them, and that each works at a small size."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import transformers

import zoo
from tests.zoo.combinations import random_tokens
from tests.zoo.released import OWN_CODE, RELEASED, STORED_PARAMETERS, UNRELEASED
from zoo import hf, presets
from zoo.edits import expand
from zoo.hf._config import Config
from zoo.presets import Preset

NAMES = [name for name in presets.names() if presets.preset(name).buildable]
every_preset = pytest.mark.parametrize("name", NAMES)


@every_preset
def test_presets_have_the_published_size(name: str) -> None:
    """Within 1 %, or a note says the ratio and why; active parameters too."""
    preset = presets.preset(name)
    cost = zoo.cost(preset.spec)
    counts = {
        "published": (cost.params, preset.published_parameters),
        "published active": (cost.params_active, preset.published_active_parameters),
    }
    for which, (counted, published) in counts.items():
        stated = re.search(rf"(\d\.\d+) of the {which} count", preset.note or "")
        ratio = counted / published if published else 1.0
        if abs(ratio - 1) > 0.01:
            assert stated is not None, f"{ratio:.3f} of the {which} count, and no note says why"
            assert float(stated[1]) == pytest.approx(ratio, rel=0.01)
        else:
            assert stated is None


@pytest.mark.parametrize("name", RELEASED)
def test_presets_say_what_the_released_config_says(name: str) -> None:
    """Every value of the architecture, layer by layer, as transformers' reading of config.json has it."""
    family, given = RELEASED[name]
    config = Config(transformers.AutoConfig.for_model(family, **given))
    assert hf._differences(zoo.parse(hf.families()[family].spec(config)), zoo.load(name)) == []


def test_every_released_model_is_read_twice() -> None:
    assert set(NAMES) - set(RELEASED) == UNRELEASED | OWN_CODE


@pytest.mark.parametrize("name", STORED_PARAMETERS)
def test_presets_have_as_many_parameters_as_the_released_weights(name: str) -> None:
    assert zoo.cost(zoo.load(name)).params == STORED_PARAMETERS[name]


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3", "gpt_oss"])
def test_active_counts_that_leave_out_the_token_table(name: str) -> None:
    """As the notes say; the published numbers have two or three digits."""
    preset = presets.preset(name)
    cost = zoo.cost(preset.spec)
    assert preset.published_active_parameters is not None
    assert "active count, which leaves out the token table" in (preset.note or "")
    active = cost.params_active - cost.params_embedding
    assert active == pytest.approx(preset.published_active_parameters, rel=0.011)


def test_multi_token_prediction_adds_what_deepseek_v3_says() -> None:
    """11.5 billion parameters of its own: README_WEIGHTS.md of the released weights."""
    added = zoo.cost(zoo.load("deepseek_v3", **{"mtp.depth": 1})).params - zoo.cost(zoo.load("deepseek_v3")).params
    assert added == pytest.approx(11.5e9, rel=0.01)


LLAMA_405B = {"d_model": 16384, "n_layers": 126, "block.mixer.heads": 128, "block.ffn.d_ff": 53248}


@pytest.mark.parametrize(
    ("name", "edits", "published"),
    [("deepseek_v3", {}, 70_272), ("qwen2_5", {}, 327_680), ("llama3", LLAMA_405B, 516_096)],
)
def test_cache_bytes_per_token_are_as_published(name: str, edits: dict[str, Any], published: int) -> None:
    """In bfloat16: Zhao et al. 2025 (Insights into DeepSeek-V3), arXiv:2505.09343, table 1."""
    cost = zoo.cost(zoo.load(name, **edits))
    assert cost.cache_bytes(1, 4096, "bfloat16") == 4096 * published


def test_edits_make_the_other_sizes_of_a_family() -> None:
    """Grattafiori et al. 2024, arXiv:2407.21783, table 3: 405B."""
    assert zoo.cost(zoo.load("llama3", **LLAMA_405B)).params == pytest.approx(405e9, rel=0.01)


def test_a_window_caps_the_cache_as_mistral_says() -> None:
    """8 times less at 32k tokens: Jiang et al. 2023, arXiv:2310.06825, section 2."""
    whole = zoo.load("mistral_7b", **{"block.mixer.window": None})
    caches = [zoo.cost(spec).cache_bytes(1, 32768, "bfloat16") for spec in (whole, zoo.load("mistral_7b"))]
    assert caches[0] == 8 * caches[1]


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_names_its_source_and_what_is_assumed_in_it(name: str) -> None:
    preset = presets.preset(name)
    assert preset.source == "this project" or preset.source.startswith(("arXiv:", "https://"))
    assert not preset.stand_ins or preset.note, "nothing says what is stood in for"
    for path in preset.assumed + preset.stand_ins:
        assert _at(expand(preset.parts), path) is not None, path


def _at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = {"kind": data}.get(key) if isinstance(data, str) else expand(data).get(key)
    return data


def test_a_model_of_which_too_little_is_public_cannot_be_built() -> None:
    with pytest.raises(zoo.SpecError, match=r"preset: 'gpt4' cannot be built: public are only .*SwiGLU"):
        zoo.load("gpt4", d_model=64)


@every_preset
def test_a_shrunk_preset_has_the_same_parts(name: str) -> None:
    full, small = zoo.load(name), presets.shrunk(name)
    assert _kinds(small) == _kinds(full)
    assert zoo.cost(small).params < 1_000_000
    assert small.n_layers <= 8


def _kinds(spec: zoo.ModelSpec) -> set[Any]:
    """What a layer is made of, without its sizes, and whether heads are grouped and attention windowed."""

    def named(part: Any) -> Any:
        if not isinstance(part, dict):
            return part if isinstance(part, bool | str) or part is None else type(part).__name__
        return tuple((key, named(value)) for key, value in part.items() if key not in ("kv_heads", "fraction"))

    return {named(layer.model_dump(mode="json")) for layer in spec.layers}


@every_preset
def test_a_shrunk_preset_learns(name: str) -> None:
    """20 steps on one batch: the loss falls."""
    spec = presets.shrunk(name)
    model, tokens = zoo.build(spec).train(), random_tokens(spec, 2, 17)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    torch.manual_seed(0)
    for _ in range(20):
        objective, nats = model.loss(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
        losses.append(nats.item())
    assert losses[-1] < 0.9 * losses[0]
    assert sum(losses[10:]) < sum(losses[:10])


def started(spec: zoo.ModelSpec) -> zoo.Decoder:
    """As training starts, but for what starts at zero, which would hide what it multiplies."""
    model = zoo.build(spec)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@every_preset
@pytest.mark.parametrize("chunks", [[1] * 15, [11, 1, 3]], ids=str)
def test_a_shrunk_preset_decodes_as_it_reads(name: str, chunks: list[int]) -> None:
    """Beyond the window of 8, where there is one; and without the cache the chunks give something else."""
    spec = presets.shrunk(name)
    model, tokens = started(spec).eval(), random_tokens(spec, 2, 15)
    cache = model.new_cache(batch=2, capacity=15)
    with torch.no_grad():
        cached = torch.cat([model(chunk, cache) for chunk in tokens.split(chunks, dim=1)], dim=1)
        whole = model(tokens)
        alone = torch.cat([model(chunk) for chunk in tokens.split(chunks, dim=1)], dim=1)
    scale = max(1.0, whole.abs().max().item())
    assert (cached - whole).abs().max() <= 1e-5 * scale
    assert (alone - whole).abs().max() > 1e-3 * scale


def test_shrinking_keeps_ratios() -> None:
    small = presets.shrunk("command_a")
    assert (small.d_model, small.n_layers, small.pattern) == (64, 2, ("block", "far"))
    local, far = small.layers
    assert (local.mixer.window, far.mixer.window, far.mixer.position.kind) == (8, None, "nope")
    assert (local.mixer.heads, local.mixer.kv_heads, local.mixer.head_dim) == (4, 2, 16)
    assert local.ffn.d_ff == 3 * 64
    palm = presets.shrunk("palm").layers[0]
    assert (palm.mixer.kv_heads, palm.topology, palm.ffn.d_ff) == (1, "parallel", 4 * 64)


def test_presets_are_told_apart_by_their_files_alone() -> None:
    data = {name: presets.preset(name) for name in presets.names()}
    assert all(isinstance(preset, Preset) and preset.name == name for name, preset in data.items())
    assert len({preset.spec.digest for preset in data.values() if preset.buildable}) == len(NAMES)
