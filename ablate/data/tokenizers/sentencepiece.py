"""Models of SentencePiece."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers
from tokenizers.decoders import Decoder
from tokenizers.models import Model
from tokenizers.normalizers import Normalizer

from ablate.data.tokenizers._loaded import LocalTokenizer
from ablate.data.tokenizers._sentencepiece import BPE, NORMAL, UNIGRAM, USER_DEFINED, SentencePieceModel, parsed
from ablate.errors import DataError

SPACE = "▁"
NEVER = -1e9
"""The score of what text does not spell. Any other way to cut it is likelier, but for one with an unknown character."""


class SentencePieceTokenizer(LocalTokenizer):
    """A `.model` of SentencePiece (Kudo & Richardson 2018, arXiv:1808.06226), unigram or BPE, converted. The package
    sentencepiece is not needed.

    Unigram (Kudo 2018, arXiv:1804.10959) cuts text where the sum of the pieces' scores is largest. BPE merges the
    adjacent pair whose union has the highest score, until no union is a piece.
    """

    kind: Literal["sentencepiece"] = "sentencepiece"

    def loaded(self, base: Path) -> Tokenizer:
        return Tokenizer.from_str(_converted(self.read(base), self.path))


@lru_cache(maxsize=2)
def _converted(content: bytes, path: str) -> str:
    """The model as a tokenizer.json. Raises DataError."""
    try:
        found = parsed(content)
    except ValueError as error:
        raise DataError(f"tokenizer.path: {path}: {error}") from error
    if reason := _refusal(found):
        raise DataError(
            f"tokenizer.path: {path} {reason}, which is not converted: `AutoTokenizer.from_pretrained(DIR)"
            ".save_pretrained(DIR)` of transformers may write a tokenizer.json"
        )
    tokenizer = Tokenizer(_unigram(found) if found.kind == UNIGRAM else _bpe(found))
    tokenizer.normalizer = normalizers.Sequence(list(_normalizers(found)))
    tokenizer.decoder = decoders.Sequence(list(_decoders(found)))
    return tokenizer.to_str()


def _refusal(found: SentencePieceModel) -> str | None:
    if found.kind not in (UNIGRAM, BPE):
        return "cuts text into words or characters"
    if found.kind == BPE and any(piece.type == USER_DEFINED for piece in found.pieces):
        return "has user-defined symbols in a BPE"
    if found.suffix or not found.escapes:
        return "marks spaces in another way than ▁ before a word"
    return None


def _unigram(found: SentencePieceModel) -> Model:
    """Control symbols, bytes and unused pieces keep their ids, but text that spells them is cut another way."""
    most = max((piece.score for piece in found.pieces if piece.type == NORMAL), default=0.0)

    def score(text: str, score: float, kind: int) -> float:
        if kind == USER_DEFINED:
            return len(text.encode()) * most - 0.1  # as SentencePiece scores them
        return score if kind == NORMAL else NEVER

    scored = [(piece.text, score(piece.text, piece.score, piece.type)) for piece in found.pieces]
    return models.Unigram(scored, found.unknown, found.byte_fallback)


def _bpe(found: SentencePieceModel) -> Model:
    """Pairs in the order of their unions' scores. Only normal pieces come from merges."""
    scores = {piece.text: piece.score for piece in found.pieces if piece.type == NORMAL}
    merges = [
        (-score, piece[:cut], piece[cut:])
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    ranked = sorted(merges, key=lambda merge: merge[0])
    return models.BPE(
        {piece.text: index for index, piece in enumerate(found.pieces)},
        [(left, right) for _, left, right in ranked],
        unk_token=found.pieces[found.unknown].text,
        fuse_unk=True,
        byte_fallback=found.byte_fallback,
    )


def _normalizers(found: SentencePieceModel) -> Iterator[Normalizer]:
    if found.charsmap:
        yield normalizers.Precompiled(found.charsmap)
    if found.strips:
        yield normalizers.Strip()
        yield normalizers.Replace(Regex(" {2,}"), " ")
    if found.prefix:
        yield normalizers.Prepend(SPACE)
    yield normalizers.Replace(" ", SPACE)


def _decoders(found: SentencePieceModel) -> Iterator[Decoder]:
    yield decoders.Replace(SPACE, " ")
    yield decoders.ByteFallback()
    yield decoders.Fuse()
    if found.prefix:
        yield decoders.Strip(" ", 1, 0)
