"""A tokenizer whose tokens are bytes, and a model whose answers depend on everything it has read."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

import zoo
from tests.evals.bytelevel import byte_level
from zoo.model import Decoder


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    """Token id = byte value, so that tests can encode by hand with str.encode."""
    return byte_level([])


@pytest.fixture(scope="session")
def model() -> Decoder:
    """A small model that transformers' Llama can be, too: embeddings enter the stream as they are."""
    edits = {"d_model": 32, "n_layers": 2, "vocab_size": 300, "block.mixer.kv_heads": 2, "embedding_scale": 1.0}
    return zoo.build(zoo.load("small", **edits), seed=3).eval()
