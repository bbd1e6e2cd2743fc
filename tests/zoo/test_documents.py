"""Several documents in one row: each has the logits that it has alone, or the model refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from zoo.attend import attention_backend
from zoo.conformance.checks import documents
from zoo.conformance.shrink import shrunk
from zoo.conformance.subject import CheckSubject
from zoo.presets import names, preset

APART: list[dict[str, Any]] = [
    *({"block.mixer.position": kind} for kind in ("nope", "learned", "sinusoidal", "alibi", "t5", "xpos")),
    *({"block.mixer": kind} for kind in ("cosine", "differential", "differential_v2", "mla")),
    {"block.mixer.window": 4, "block.mixer.softcap": 3.0, "block.mixer.sinks": True},
    {"visible": "all"},
    {"visible": "prefix"},
    {"block.mixer.gate": "feature", "block.mixer.qk_norm": "rmsnorm"},
    {"block.mixer.position.scaling": {"kind": "yarn", "factor": 4.0, "original_length": 4}},
]
REFUSED: list[dict[str, Any]] = [
    *({"block.mixer": kind} for kind in ("mamba2", "moba", "nsa")),
    {"block.mixer.sparsity": "chunked"},
    {"block.mixer.conv": 3},
    {"block.canon": {}},
    # frequencies that follow the longest document of a batch
    {"block.mixer.position.scaling": {"kind": "dynamic", "factor": 4.0, "original_length": 4}},
]


def subject(edits: dict[str, Any]) -> CheckSubject:
    return CheckSubject(zoo.load("small", d_model=32, n_layers=2, **edits))


@pytest.mark.parametrize("edits", APART, ids=str)
def test_each_is_read_by_itself(edits: dict[str, Any]) -> None:
    assert documents(subject(edits)) is None


@pytest.mark.parametrize("edits", REFUSED, ids=str)
def test_parts_by_which_they_would_meet_refuse_them(edits: dict[str, Any]) -> None:
    tokens = torch.zeros(1, 8, dtype=torch.long)
    with pytest.raises(zoo.UnsupportedError, match="documents: does not support"):
        subject(edits).model(tokens, documents=tokens)


@pytest.mark.slow
def test_most_published_models_take_them() -> None:
    found = [documents(CheckSubject(shrunk(name), thorough=False)) for name in names() if preset(name).buildable]
    assert found.count(None) >= 40


@pytest.mark.parametrize("name", ["small", "gemma2", "falcon_7b"])
def test_backends_agree(name: str) -> None:
    """Three documents end within a block of the mask, one at its edge."""
    model = zoo.build(shrunk(name)).double().eval()
    tokens = torch.randint(0, model.spec.vocab_size, (2, 300), generator=torch.Generator().manual_seed(0))
    numbers = torch.bucketize(torch.arange(300), torch.tensor([40, 128, 200]), right=True).expand(2, -1)
    found = {}
    for backend in ("plain", "flex"):
        with torch.no_grad(), attention_backend(backend):
            found[backend] = model(tokens, documents=numbers)
    torch.testing.assert_close(found["flex"], found["plain"])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"left_pad": torch.tensor([1])}, "documents cannot be passed with left_pad"),
        ({"cache": True}, "documents cannot be passed with a cache"),
        ({"documents": torch.zeros(1, 3, dtype=torch.long)}, r"must have the shape of tokens, \(1, 8\), not \(1, 3\)"),
    ],
    ids=["padding", "cache", "shape"],
)
def test_what_has_no_documents_says_so(given: dict[str, Any], why: str) -> None:
    tokens, model = torch.zeros(1, 8, dtype=torch.long), subject({}).model
    given = {"documents": tokens, **given}
    if given.pop("cache", None):
        given["cache"] = model.new_cache(1, 8)
    with pytest.raises(ValueError, match=why):
        model(tokens, **given)
