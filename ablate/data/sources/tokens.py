"""Text that somebody has tokenised already: nanoGPT's `.bin`, `.npy`, Megatron's `.idx/.bin`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field

from ablate.data.paths import matches
from ablate.data.sources import TextSource
from ablate.data.sources._token_files import documents
from ablate.data.sources.files import Paths
from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers.bpe import BpeTokenizer
from ablate.errors import DataError
from zoo.settings.axis import Choice


class TokensSource(TextSource):
    """Files of token ids, decoded to text, which is then split, tokenised and scored like any other.

    A `.bin` beside an `.idx` of the same name is Megatron's, with the documents of its index. Other `.bin` files are
    those of nanoGPT, or of llm.c and modded-nanogpt, which have a header, and `.npy` are arrays of numpy; there
    documents end with the tokenizer's end of text. Text that is tokenised again by the tokenizer that made it gives the
    same ids, unless they were not those of its own encoding.
    """

    source: Literal["tokens"] = "tokens"
    paths: Annotated[Paths, Field(min_length=1, strict=False)]
    """Globs of `.bin` and `.npy` files, or folders of them."""
    encoder: Annotated[TokenizerSpec, Choice("ablate.data.tokenizers")] | None = None
    """The tokenizer that made the files; null where it is `tokenizer`."""
    dtype: Literal["uint16", "uint32", "int64"] = "uint16"
    """Type of the ids in `.bin` files that have neither a header nor an index. One that cannot be right is refused."""
    validation_paths: Annotated[Paths, Field(strict=False)] = ()
    """Held-out files, in place of holding out a share of `paths`."""

    def tokenised_by(self, tokenizer: TokenizerSpec) -> Self:
        return self.model_copy(update={"tokenizer": tokenizer, "encoder": self.encoder or self.tokenizer})

    def documents(self, base: Path) -> Iterator[str]:
        return self._read(self.paths, base)

    def held_out(self, base: Path) -> Iterator[str] | None:
        return self._read(self.validation_paths, base) if self.validation_paths else None

    def _read(self, patterns: tuple[str, ...], base: Path) -> Iterator[str]:
        made_by = self.encoder or self.tokenizer
        if isinstance(made_by, BpeTokenizer):
            raise DataError("data.encoder: names the tokenizer that made the files; bpe is trained on the text itself")
        maker = made_by.encoder((), base)
        many = maker.tokenizer.get_vocab_size(with_added_tokens=True)
        found = matches(patterns, base, lambda path: path.suffix in {".bin", ".npy"})
        for path in dict.fromkeys(path.with_suffix(".bin") if path.suffix == ".idx" else path for path in found):
            for ids in documents(path, self.dtype, maker.eos, many):
                if len(ids) and not 0 <= ids.min() <= ids.max() < many:
                    wrong = ids.min() if ids.min() < 0 else ids.max()
                    sizes = f"the id {wrong:,}, and the tokenizer {many:,} tokens"
                    raise DataError(f"{path} has {sizes}: name the one that made it in data.encoder")
                yield maker.tokenizer.decode(ids.tolist(), skip_special_tokens=False)
