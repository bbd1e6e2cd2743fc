"""Holes filled, against passes over whole texts without a cache, laid out by hand; and by models that know a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from ablate.cli import main
from ablate.data import prepare
from ablate.data.tokenizers.bytes import byte_tokenizer
from ablate.machine.numerics import enforce
from ablate.planning.make_plan import make_plan
from ablate.running.request import Request
from ablate.running.worker import carry_out
from ablate.study.reading import load_study
from ablate.training.objectives._holes import Filling, FillsHoles, HolesError
from ablate.training.objectives.blank_infilling import BlankInfilling
from ablate.training.objectives.masked import Masked
from ablate.training.objectives.span_corruption import SpanCorruption
from store import Store
from zoo.conformance.combinations import random_model
from zoo.decode import Sampling
from zoo.model import Decoder

TEXT, CONTEXT = 20, 40
"""Ids of the text, and tokens of a training window: 2 spans of 6 dropped tokens."""
PIECES = [[3, 1, 4], [1, 5], []]
"""Two holes, the second at the end."""
SMALL = {"d_model": 24, "n_layers": 2, "block.mixer.heads": 4}
POSITIONS = {
    "two dimensions": {"block.mixer.position": {"kind": "two_dimensional", "length": 30}},
    "one dimension": {"block.mixer.position": {"kind": "learned", "length": 30}},
    "rope": {},
}


def model_of(objective: Any, **edits: Any) -> Decoder:
    vocabulary = TEXT + objective.extra_tokens(CONTEXT)
    return random_model(zoo.load("small", **SMALL, vocab_size=vocabulary, **edits))


def filled(objective: FillsHoles, model: Decoder, new: int, pieces: Sequence[list[int]] = PIECES, **how: Any) -> Any:
    with torch.inference_mode():
        draw = torch.Generator().manual_seed(0)
        return objective.fill(model, pieces, Filling(new, CONTEXT, TEXT, Sampling(**how), draw))


def likeliest(logits: Tensor, ends: Sequence[int] = ()) -> int:
    """Id of the likeliest of the text's tokens and the tokens that end a hole, from logits (V,)."""
    return max([*range(TEXT), *ends], key=lambda token: float(logits[token]))


def test_masks_are_filled_one_after_the_other() -> None:
    model = model_of(Masked(), visible="all")
    text = torch.tensor([[3, 1, 4, TEXT, TEXT, 1, 5, TEXT, TEXT]])
    with torch.inference_mode():
        for place in (3, 4, 7, 8):
            text[0, place] = likeliest(model(text)[0, place])
    assert filled(Masked(), model, 2) == [text[0, 3:5].tolist(), text[0, 7:9].tolist()]


@pytest.mark.parametrize("new", [1, 3, 9])
def test_the_decoder_writes_after_each_sentinel(new: int) -> None:
    """Ids of the objective: what starts the decoder, and 3 sentinels for 2 spans."""
    objective = SpanCorruption()
    model = model_of(objective, encoder={"n_layers": 1}, tie_embeddings=False)
    start, sentinels = TEXT, [TEXT + 1, TEXT + 2, TEXT + 3]
    source = torch.tensor([[3, 1, 4, sentinels[0], 1, 5, sentinels[1]]])
    written, spans = [start], []
    for sentinel in sentinels[:2]:
        written.append(sentinel)
        spans.append([])
        with torch.inference_mode():
            while len(spans[-1]) < new:
                logits = model(torch.tensor([written]), encoder_tokens=source)[0, -1]
                token = likeliest(logits, sentinels)
                if token in sentinels:
                    break
                spans[-1].append(token)
                written.append(token)
    assert filled(objective, model, new) == spans


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
@pytest.mark.parametrize("new", [1, 3, 9])
def test_blanks_are_written_at_their_places(new: int, positions: dict[str, Any]) -> None:
    objective = BlankInfilling()
    mask, start, end = TEXT, TEXT + 1, TEXT + 2
    model = model_of(objective, visible="prefix", tie_embeddings=False, **positions)
    tokens, places = [3, 1, 4, mask, 1, 5, mask], [*range(7)]
    blocks, spans = [0] * 7, []
    for place in (3, 6):
        spans.append([])
        tokens, places, blocks = [*tokens, start], [*places, place], [*blocks, 1]
        with torch.inference_mode():
            while len(spans[-1]) < new:
                given = {"places": torch.tensor([places]), "block_places": torch.tensor([blocks])}
                logits = model(torch.tensor([tokens]), prefix=torch.tensor([7]), **given)[0, -1]
                token = likeliest(logits, [end])
                if token == end:
                    break
                spans[-1].append(token)
                tokens, places, blocks = [*tokens, token], [*places, place], [*blocks, blocks[-1] + 1]
    assert filled(objective, model, new) == spans


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "masked": (Masked(), {"visible": "all"}),
    "span_corruption": (SpanCorruption(), {"encoder": {"n_layers": 1}, "tie_embeddings": False}),
    "blank_infilling": (BlankInfilling(), {"visible": "prefix"}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
SLOWLY_LEARNT = [kind for kind in KINDS if kind != "masked"]


def test_sentinels_to_come_are_no_repetition() -> None:
    """The sentinel of the second hole, which ends the first, is as likely under a repetition penalty as without."""
    objective = SpanCorruption()
    model = model_of(objective, encoder={"n_layers": 1}, tie_embeddings=False)
    end = torch.zeros(model.spec.vocab_size)
    end[: TEXT + 2], end[TEXT + 2] = -50.0, 100.0

    def read_out(stream: Tensor) -> Tensor:
        return end.expand(*stream.shape[:-1], -1) + 0.0 * stream.sum(-1, keepdim=True)

    model.read_out = read_out  # type: ignore[method-assign]
    end[7] = 60.0
    assert filled(objective, model, 3) == filled(objective, model, 3, repetition_penalty=2.0) == [[], []]


@every_kind
def test_drawn_fills_depend_on_the_draw_and_are_text(kind: str) -> None:
    objective, edits = KINDS[kind]
    model = model_of(objective, **edits)
    hot = [filled(objective, model, 6, temperature=50.0) for _ in range(2)]
    assert hot[0] == hot[1] != filled(objective, model, 6)
    assert all(token < TEXT for span in hot[0] for token in span)


@pytest.mark.parametrize(
    ("kind", "new", "pieces", "reason"),
    [
        ("span_corruption", 1, [[1]] * 4, "3 holes, but windows of 40 tokens trained sentinels for only 2"),
        ("span_corruption", 6, [[1]] * 3, "the output takes 15 tokens: the model has positions for 12"),
        ("span_corruption", 1, [[1] * 13, [1]], "the text with its sentinels takes 15 tokens"),
        ("masked", 6, [[1]] * 3, "the text with its masks takes 15 tokens: the model has positions for 12"),
        ("blank_infilling", 1, [[1] * 12, []], "the text with its masks takes 13 tokens"),
        ("blank_infilling", 11, [[1], []], "a blank takes 13 tokens: the model has positions for 12"),
    ],
)
def test_what_has_no_room_says_so(kind: str, new: int, pieces: list[list[int]], reason: str) -> None:
    objective, edits = KINDS[kind]
    model = model_of(objective, **edits, **{"block.mixer.position": {"kind": "learned", "length": 12}})
    with pytest.raises(HolesError, match=reason):
        filled(objective, model, new, pieces)


STUDY = """
question: Does it learn a text by heart?
base: {{preset: small, d_model: 64, n_layers: 2, block.mixer.heads: 4, {edits}}}
arms: {{same: {{train.lr: 1e-2}}}}
data: {{source: files, paths: ["*.txt"], tokenizer: bytes, validation_tokens: 256}}
train: {{context: 24, batch: 16, lr: 5e-3, objective: {kind}}}
budget: {{tokens: {tokens}}}
tune: off
measure: null
evals: null
"""
SENTENCE = "abcdefghijkl"

EDITS = {
    "masked": "visible: all",
    "span_corruption": "encoder: {n_layers: 2}",
    "blank_infilling": "visible: prefix",
    "prefix": "visible: prefix",
}
LEARNT = {"masked": 150, "span_corruption": 300, "blank_infilling": 320, "prefix": 60}
"""Steps after which a model knows the sentence by heart."""
FEW = 2
"""Steps of a run that need not know anything."""


class Lab:
    """Trains a run of each kind, once for each number of steps."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(folder / "runs")
        self._digests = dict[tuple[str, int], str]()
        for number in range(20):
            (folder / f"{number}.txt").write_text(f"{number} " + SENTENCE * 90)

    def run(self, kind: str, steps: int) -> str:
        """Its digest."""
        if (kind, steps) not in self._digests:
            self._digests[kind, steps] = self._trained(kind, steps)
        return self._digests[kind, steps]

    def _trained(self, kind: str, steps: int) -> str:
        path = self.folder / f"{kind}.yaml"
        path.write_text(STUDY.format(kind=kind, edits=EDITS[kind], tokens=16 * 24 * steps))
        plan = make_plan(load_study(path, "cpu", ["seeds=[0]"]), matmul=enforce("cpu", "float32").matmul)
        prepare(plan.arms[0].data, self.store.data_dir, self.folder)
        run = plan.arms[0].runs[0]
        corpus = str(self.store.data(run.identity.data.digest).path)
        carry_out(Request(store=str(self.store.root), corpus=corpus, identity=run.identity))
        return run.digest


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("filling"))


def said(capsys: pytest.CaptureFixture[str], lab: Lab, kind: str, *arguments: str) -> Any:
    digest = lab.run(kind, LEARNT[kind])
    assert main(["generate", digest, "--store", str(lab.store.root), "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masked", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOWLY_LEARNT)])
def test_what_was_learnt_by_heart_is_put_back(kind: str, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Windows of 24 tokens lose four at their end to the one span that they have; masks are anywhere."""
    length = ["--tokens", "4"] if kind == "masked" else []
    prompts = (
        ["abcd___ijklabcdefghijkl"] if kind == "masked" else ["abcdefghijklabcdefgh___", "defghijklabcdefghijk___"]
    )
    fills = ["efgh"] if kind == "masked" else ["ijkl", "labc"]
    whole = [prompt.replace("___", fill) for prompt, fill in zip(prompts, fills, strict=True)]
    expected = [
        {"prompt": prompt, "text": text, "fills": [fill]}
        for prompt, text, fill in zip(prompts, whole, fills, strict=True)
    ]
    assert said(capsys, lab, kind, "--prompt", *prompts, *length)["filled"] == expected
    marked = [prompt.replace("___", "<>") for prompt in prompts]
    again = said(capsys, lab, kind, "--hole", "<>", "--prompt", *marked, *length)["filled"]
    assert [each["text"] for each in again] == whole


def test_without_json_the_filled_prompt_is_printed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    digest = lab.run("masked", LEARNT["masked"])
    arguments = ["generate", digest, "--store", str(lab.store.root), "--prompt", "abcd___fgh", "ab___defgh"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "abcdefgh\nabcdefgh\n"


def test_a_prompt_is_the_prefix(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Each as if it were alone: rows of unlike length are padded."""
    digest = lab.run("prefix", LEARNT["prefix"])
    model, tokenizer = zoo.open(lab.store.model_dir(digest)), byte_tokenizer()
    prompts = ["klabc___d", "q"]
    said_of = said(capsys, lab, "prefix", "--prompt", *prompts, "--tokens", "9")["continuations"]
    for prompt, found in zip(prompts, said_of, strict=True):
        tokens = torch.tensor([tokenizer.encode(prompt).ids])
        written = tokens
        with torch.inference_mode():
            for _ in range(9):
                seen = model(written, prefix=torch.tensor([tokens.shape[1]]))
                written = torch.cat((written, seen[:, -1:].argmax(-1)), dim=1)
        assert found == {"prompt": prompt, "text": tokenizer.decode(written[0, tokens.shape[1] :].tolist())}


@pytest.mark.parametrize(
    ("kind", "arguments", "reason"),
    [
        ("masked", ["--prompt", "abc"], "--prompt 'abc': has no ___ marker"),
        ("blank_infilling", ["--prompt", "a___c", "--hole", "<>"], "has no <> marker"),
        ("masked", ["--prompt", "abc", "--hole", ""], "--hole: must not be empty"),
        ("masked", ["--prompt", "a___c", "--stop", "b"], "--stop: only ends continuations"),
        (
            "span_corruption",
            ["--prompt", "a___b___c"],
            "2 holes, but windows of 24 tokens trained sentinels for only 1",
        ),
        ("masked", ["--prompt", "a___b", "--tokens", str(10**15)], "out of memory: ask for fewer tokens"),
        ("blank_infilling", ["--prompt", "a___b", "--tokens", str(10**12)], "out of memory: ask for fewer tokens"),
        ("prefix", ["--prompt", "a", "--tokens", str(10**12)], "out of memory: ask for fewer tokens"),
        ("prefix", ["--prompt", "a___b", "--hole", "___"], "--hole: a model trained with prefix continues text"),
    ],
)
def test_what_cannot_be_is_one_line(
    kind: str, arguments: list[str], reason: str, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", lab.run(kind, FEW), "--store", str(lab.store.root), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ablate: ") and reason in line
