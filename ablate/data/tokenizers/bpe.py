"""Byte-level BPE, trained on the study's own corpus."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers._encoder import EOS, Encoder
from zoo.settings.identity import FirstDefault

EOS_ID = 0
"""The trainer gives special tokens the first ids."""


class BpeTokenizer(TokenizerSpec):
    """Byte-pair encoding (Sennrich et al., arXiv:1508.07909) over bytes, with the word pattern of GPT-2.

    Trained on documents of the train split only. `<|endoftext|>` is id 0. A corpus too small for `vocab_size` yields
    fewer tokens; the model's vocabulary is `vocab_size` regardless.
    """

    learns: ClassVar[bool] = True

    kind: Literal["bpe"] = "bpe"
    vocab_size: Annotated[int, Field(ge=257), FirstDefault(...)] = 4096
    """Number of tokens, including the 256 bytes and end of text."""

    def vocabulary(self, base: Path) -> int:
        return self.vocab_size

    def encoder(self, texts: Iterable[str], base: Path) -> Encoder:
        return Encoder(train(texts, self.vocab_size), EOS_ID)


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer of at most `vocab_size` tokens. Deterministic."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Encode text that spells `<|endoftext|>` as plain text: it must not forge the end of a document.
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(document))
