"""The mixers of docs/adding_a_mixer.md and of the pages beside it, dropped into their folder: one file each, with a
cache of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.cli import main
from ablate.wings.catalogue.commands._building_blocks import block
from ablate.wings.plugins.plugin_files import place_of
from tests.guides.guide import ROOT, files_of, followed
from zoo import building_blocks

SCAN, ATTENTION = "adding_a_scan.md", "adding_attention.md"
PAGES = ("adding_a_mixer.md", SCAN, ATTENTION, "building_blocks.md")
FILES = {name: text for page in PAGES[:3] for name, text in files_of(page).items()}

PROGRAM = """
import torch
import zoo
from zoo.mixers.ema import averaged

spec = zoo.load("small", **{"d_model": 32, "n_layers": 2, "block.mixer": "ema"})
model = zoo.build(spec, seed=0)
draw = torch.Generator().manual_seed(0)
tokens, left_pad = torch.randint(spec.vocab_size, (3, 12), generator=draw), torch.tensor([0, 2, 5])
cache = model.new_cache(batch=3, capacity=64)
with torch.no_grad():
    chunks = [model(tokens[:, :6], left_pad=left_pad, cache=cache)]
    chunks += [model(chunk, cache=cache) for chunk in tokens[:, 6:].split([1, 3, 2], dim=1)]
    alone = [model(row[pad:][None])[0, -1] for row, pad in zip(tokens, left_pad)]

other = zoo.build(zoo.load("small", **{"d_model": 32, "n_layers": 2, "block.mixer.heads": 2}))
try:
    model(tokens, cache=other.new_cache(batch=3, capacity=64))
except TypeError as error:
    refused = str(error)

cost = zoo.cost(spec, context=12)
values, rate, state = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((2, 5, 3), (3,), (2, 3)))
print(json.dumps({
    "cached": torch.cat(chunks, dim=1)[:, -1].tolist(),
    "alone": torch.stack(alone).tolist(),
    "nbytes": [cache.nbytes, cost.cache_bytes(3, 64, torch.float32)],
    "parameters": [sum(parameter.numel() for parameter in model.parameters()), cost.params],
    "refused": refused,
    "values": values.tolist(), "rate": rate.tolist(), "state": state.tolist(),
    "averages": averaged(values, rate, state).tolist(),
}))
"""


def test_a_dropped_mixer_decodes_from_its_cache_and_costs_what_it_declares(tmp_path: Path) -> None:
    mixers = {f"zoo/mixers/{name}.py" for name in ("ema", "fading", "twice", "gsa", "tied")}
    assert set(FILES) == {*mixers, "test_tied.py"}
    said = followed("adding_a_mixer.md", tmp_path, PROGRAM)
    # A head that starts at zero would be right whatever the mixer does.
    assert np.ptp(said["alone"]) > 0.1
    np.testing.assert_allclose(said["cached"], said["alone"], atol=1e-5)
    assert said["nbytes"] == [2 * 3 * 32 * 4] * 2  # layers, rows, features, bytes: whatever the capacity
    assert said["parameters"][0] == said["parameters"][1]
    assert "needs a StateCache, not a TokenCache" in said["refused"]
    values, rate, state = (np.array(said[name]) for name in ("values", "rate", "state"))
    share = 1 / (1 + np.exp(-rate))
    # Unrolled: s_t = (1 − α)^(t+1) s_before + Σ_j α (1 − α)^(t−j) v_j.
    for t, average in enumerate(np.moveaxis(np.array(said["averages"]), 1, 0)):
        terms = [share * (1 - share) ** (t - j) * values[:, j] for j in range(t + 1)]
        assert average == pytest.approx((1 - share) ** (t + 1) * state + sum(terms))


CONFORMING = """
import torch
import zoo
from zoo.conformance.checking import conforms
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass

small = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "block.mixer": {"kind": KIND, "heads": 4, **SETTINGS}}
for example in zoo.settings.axis.variants("zoo.mixers")[KIND].examples:
    conforms(zoo.load("small", **{**small, "block.mixer": {"kind": KIND, "heads": 4, **example}}))
layer = random_model(zoo.load("small", **small)).blocks[0].mixer.double()
x = torch.randn(1, 9, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    print(json.dumps({"out": layer(x, ForwardPass.of(x[..., 0]))[0].tolist(), "x": x[0].tolist(), "state":
                      {name: value.tolist() for name, value in layer.state_dict().items()}}))
"""


def conforming(kind: str, settings: str = "{}") -> str:
    return CONFORMING.replace("KIND", repr(kind)).replace("SETTINGS", settings)


def heads_of(said: dict[str, Any], name: str) -> np.ndarray:
    """A projection of x: (H, T, d)."""
    projected = np.array(said["x"]) @ np.array(said["state"][f"{name}.weight"]).T
    return projected.reshape(9, 4, 6).transpose(1, 0, 2)


def written(said: dict[str, Any], heads: np.ndarray) -> np.ndarray:
    joined: np.ndarray = heads.transpose(1, 0, 2).reshape(9, 24) @ np.array(said["state"]["o.weight"]).T
    return joined


def test_the_scan_of_the_guide_conforms_and_is_its_recurrence(tmp_path: Path) -> None:
    said = followed(SCAN, tmp_path, conforming("fading"))
    q, k, v = (heads_of(said, name) for name in "qkv")
    keep, out = 1 / (1 + np.exp(-np.array(said["state"]["keep"]))), np.zeros((4, 9, 6))
    for h in range(4):
        state = np.zeros((6, 6))
        for t in range(9):
            state = keep[h] * state + np.outer(k[h, t], v[h, t])
            out[h, t] = state.T @ q[h, t] / np.sqrt(6)
    np.testing.assert_allclose(said["out"], written(said, out), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_the_projections_of_the_guide_conform_and_are_two_steps_of_the_delta_rule(tmp_path: Path) -> None:
    said = followed(SCAN, tmp_path, conforming("twice", "{'conv': None}"))
    x, weights = np.array(said["x"]), {name: np.array(value) for name, value in said["state"].items()}

    def unit(v: np.ndarray) -> np.ndarray:
        found: np.ndarray = v / np.sqrt((v**2).sum() + 1e-6)
        return found

    out = np.zeros((4, 9, 6))
    for h in range(4):
        state = np.zeros((6, 6))
        for t in range(9):
            keys, values = ((weights[f"{name}.weight"] @ x[t]).reshape(2, 4, 6)[:, h] for name in "kv")
            strengths = 1 / (1 + np.exp(-(weights["strength.weight"] @ x[t]).reshape(2, 4)[:, h]))
            for k, v, beta in zip(map(unit, keys), values, strengths, strict=True):
                state += beta * np.outer(k, v - state.T @ k)
            out[h, t] = state.T @ unit((weights["q.weight"] @ x[t]).reshape(4, 6)[h])
    np.testing.assert_allclose(said["out"], written(said, out), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_two_scans_of_the_guide_conform_and_are_gated_slot_attention(tmp_path: Path) -> None:
    said = followed(SCAN, tmp_path, conforming("gsa", "{'slots': 3, 'chunk': 4}"))
    q, k, v = (heads_of(said, name) for name in "qkv")
    forget = np.array(said["x"]) @ np.array(said["state"]["forget.weight"]).T
    alpha = ((1 / (1 + np.exp(-forget))) ** (1 / 8)).reshape(9, 4, 3).transpose(1, 0, 2)
    out = np.zeros((4, 9, 6))
    for h in range(4):
        keys, values = np.zeros((3, 6)), np.zeros((3, 6))
        for t in range(9):
            kept, new = alpha[h, t][:, None], 1 - alpha[h, t][:, None]
            keys, values = kept * keys + new * k[h, t], kept * values + new * v[h, t]
            weights = np.exp(keys @ q[h, t])
            out[h, t] = values.T @ (weights / weights.sum())
    np.testing.assert_allclose(said["out"], written(said, out), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_two_scans_under_one_name_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    program = """
import torch
import zoo

spec = zoo.load("small", **{"d_model": 24, "n_layers": 1, "block.mixer": {"kind": "gsa", "heads": 4, "slots": 6}})
model = zoo.build(spec)
module = __import__(type(model.blocks[0].mixer).__module__, fromlist=["scan"])
scan = module.scan
module.scan = lambda *parts, name: scan(*parts, name=module.VALUES)
cache = model.new_cache(batch=1, capacity=8)
cache.layers[0].states[module.VALUES] = torch.zeros(1, 24, 6, 1)
with torch.no_grad():
    try:
        model(torch.zeros(1, 3, dtype=torch.int64), cache=cache)
    except (TypeError, RuntimeError) as error:
        print(json.dumps(str(error)))
"""
    said = followed(SCAN, tmp_path, program)
    assert said.startswith("two parts of a layer keep a state named 'slot_values': give each its own name, as in scan(")


@pytest.mark.slow
def test_a_chunk_that_the_scan_of_a_plug_in_cannot_halve_is_refused_in_its_spec(tmp_path: Path) -> None:
    """Nothing in the guide's second example asks for it; the first one's scan takes any chunk."""
    program = """
import zoo

def said(kind):
    try:
        zoo.load("small", **{"d_model": 24, "block.mixer": {"kind": kind, "chunk": 12}})
    except zoo.SpecError as error:
        return str(error)

print(json.dumps([said("twice"), said("fading")]))
"""
    assert followed(SCAN, tmp_path, program) == ["block.mixer.chunk: must be a power of two, not 12", None]


@pytest.mark.slow
def test_a_padding_that_corrects_the_state_shows_without_the_convolution(tmp_path: Path) -> None:
    """What the guide says of its second example."""
    program = conforming("twice", "{'conv': None}").replace("conforms(zoo", "checked(zoo")
    checked = """
from zoo.mixers import twice
twice.on_text = lambda x, step: x

def checked(spec):
    try:
        conforms(spec)
        found.append("")
    except AssertionError as error:
        found.append(str(error))
"""
    program = program.partition("layer = ")[0].replace("for example", f"found = []\n{checked}\nfor example")
    hidden, shown = followed(SCAN, tmp_path, f"{program}\nprint(json.dumps(found))")
    assert hidden == ""
    assert "tokens of left padding" in shown


@pytest.mark.slow
def test_the_loop_of_the_guide_is_that_of_its_attention(tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(FILES["zoo/mixers/tied.py"], encoding="utf-8")
    (tmp_path / "test_tied.py").write_text(FILES["test_tied.py"], encoding="utf-8")
    call = "import test_tied; test_tied.test_each_query_mixes_the_keys_up_to_its_own()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}
    subprocess.run([sys.executable, "-c", call], cwd=tmp_path, env=environment, check=True)


@pytest.mark.slow
def test_the_attention_of_the_guide_conforms_and_is_its_softmax(tmp_path: Path) -> None:
    said = followed(ATTENTION, tmp_path, conforming("tied"))
    q, k = (heads_of(said, name) for name in "qk")
    out = np.zeros((4, 9, 6))
    for h in range(4):
        for t in range(9):
            weights = np.exp(k[h, : t + 1] @ q[h, t] / np.sqrt(6))
            out[h, t] = weights / weights.sum() @ k[h, : t + 1]
    np.testing.assert_allclose(said["out"], written(said, out), rtol=1e-5, atol=1e-5)


def test_each_file_of_the_guide_is_a_plug_in(tmp_path: Path) -> None:
    mixers = {name: text for name, text in FILES.items() if name.startswith("zoo/mixers/")}
    for name, text in mixers.items():
        path = tmp_path / Path(name).name
        path.write_text(text, encoding="utf-8")
        assert place_of(path) == ("zoo.mixers", path.stem)


def test_building_blocks_say_all_that_they_offer() -> None:
    assert set(building_blocks.__all__) <= set(vars(building_blocks))
    assert not [name for name in building_blocks.__all__ if name.startswith("_")]


def test_every_building_block_is_shown_with_signature_and_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    for name in building_blocks.__all__:
        found = block(name)
        assert found["doc"] and "Initialize self" not in found["doc"], name
        assert found["signature"].startswith((f"{name}(", f"{name} = ")), found["signature"]
        for signature in (found["signature"], *found["methods"]):
            assert signature.count("(") == signature.count(")")
            assert not any(word in signature for word in ("ForwardRef", "*arguments", "**data", "self"))
    assert main(["zoo", "Scoring"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("building_blocks: Scoring(scale: float, softcap: float | None = None, bias: Tensor | None")
    assert "bias: (H, T, S) or (B, H, T, S)" in said
    assert main(["zoo", "Linear"]) == 0
    assert "(dim_in: int, dim_out: int, *, bias: bool = False, role: Role, values:" in capsys.readouterr().out
    assert main(["zoo", "TokenCache", "--json"]) == 0
    methods = json.loads(capsys.readouterr().out)["methods"]
    extend = methods["extend(new: Sequence[Tensor], index: Tensor) -> tuple[list[Tensor], Tensor]"]
    assert "index: (T,), their indices in the token stream" in extend
    assert main(["zoo", "Ground"]) == 0
    assert "\nCAUSAL\n    a causal model without an encoder\n" in capsys.readouterr().out
    assert main(["zoo", "Scorng"]) == 2
    assert "unknown name 'Scorng' (did you mean 'Scoring'?)" in capsys.readouterr().err


def test_the_guide_has_a_row_for_every_building_block() -> None:
    """In the tables of all pages."""
    texts = [(ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES]
    rows = "".join(line for text in texts for line in text.splitlines(keepends=True) if line.startswith("| "))
    unsaid = [name for name in building_blocks.__all__ if not re.search(rf"`{name}\b", rows)]
    assert unsaid == []
