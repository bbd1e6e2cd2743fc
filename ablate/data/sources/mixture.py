"""A mixture of texts in given proportions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PositiveFloat, model_validator

from ablate.data.sources import BEGINNING, Progress, TextSource
from ablate.data.sources.files import FilesSource
from ablate.data.sources.hf import COMMIT_DIGITS, HfSource
from ablate.data.sources.prose import ProseSource
from ablate.data.sources.stdlib import StdlibSource
from ablate.data.sources.tokens import TokensSource
from store.documents import TakenPart, TextMeta
from zoo.settings.axis import Spec

CONTENT = "mixture:"
"""Prefix of a mixture's fingerprint, used if every part has one (a commit)."""
OF_THE_MIXTURE = ("tokenizer", "validation_fraction", "validation_tokens", "validation_paths")
Part = Annotated[FilesSource | HfSource | ProseSource | StdlibSource | TokensSource, Field(discriminator="source")]


class Share(Spec):
    """One text of a mixture."""

    data: Part
    """`{source: hf, path: …}`, or another text source, without tokenizer and held-out settings."""
    weight: PositiveFloat
    """Share of the bytes, relative to the other weights."""

    @model_validator(mode="after")
    def _says_what_is_its_own(self) -> Self:
        fields = type(self.data).model_fields
        known = (name for name in OF_THE_MIXTURE if name in fields)
        if given := [name for name in known if getattr(self.data, name) != fields[name].default]:
            raise ValueError(f"data.{given[0]} applies to the whole mixture: set it beside parts")
        if isinstance(self.data, TokensSource) and self.data.encoder is None:
            raise ValueError("data.encoder is required in a mixture: it names the tokenizer that made the tokens")
        return self


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _name(source: TextSource) -> str:
    """Name in reports, such as `files notes/*.md` or `hf a/b`."""
    settings = source.model_dump(mode="json")
    where = settings.get("paths") or settings.get("path") or ()
    return " ".join([source.source, *([where] if isinstance(where, str) else where)])


def _several(parts: tuple[Share, ...]) -> tuple[Share, ...]:
    if len(parts) < 2:
        raise ValueError("a mixture needs at least two parts")
    return parts


class MixtureSource(TextSource):
    """Documents of several sources, by weight: `parts: [{data: {source: hf, path: …}, weight: 3}, …]`.

    The next document comes from the part with the fewest bytes per weight so far. When that part is exhausted, the
    mixture ends and the rest of the others is not read, so that the shares hold. The order is deterministic. A document
    in two parts counts once.
    """

    source: Literal["mixture"] = "mixture"
    parts: Annotated[tuple[Share, ...], Field(strict=False), AfterValidator(_several)]
    """Texts with their weights."""

    def documents(self, base: Path) -> Iterator[str]:
        return (text for _, text in self._in_turn(base))

    def _in_turn(self, base: Path) -> Iterator[tuple[int, str]]:
        """Each document, with the index of its part."""
        streams = [part.data.documents(base) for part in self.parts]
        taken = [0.0] * len(streams)
        while True:
            place = min(range(len(streams)), key=taken.__getitem__)
            text = next(streams[place], None)
            if text is None:
                return
            yield place, text
            taken[place] += _bytes(text) / self.parts[place].weight

    def parts_taken(self, base: Path) -> tuple[TakenPart, ...]:
        documents, read, begins = Counter[int](), Counter[int](), dict[int, str]()
        for place, text in self._in_turn(base):
            documents[place] += 1
            read[place] += _bytes(text)
            begins.setdefault(place, text[:BEGINNING])
        return tuple(
            TakenPart(
                name=_name(part.data),
                formats=part.data.formats(base),
                documents=documents[place],
                bytes=read[place],
                begins=begins.get(place, ""),
            )
            for place, part in enumerate(self.parts)
        )

    def pinned(self, prepared: Iterable[TextMeta]) -> Self:
        known = list(prepared)
        for meta in known:
            if meta.content.startswith(CONTENT) and MixtureSource.model_validate(meta.spec).parts == self.parts:
                commits = [each.partition("@")[2][:COMMIT_DIGITS] for each in meta.content.split(";")]
                pairs = zip(self.parts, commits, strict=True)
                data = [part.data.model_copy(update={"revision": commit}) for part, commit in pairs]
                break
        else:
            data = [part.data.pinned(known) for part in self.parts]
        parts = (part.model_copy(update={"data": each}) for part, each in zip(self.parts, data, strict=True))
        return self.model_copy(update={"parts": tuple(parts)})

    def fetch(self, progress: Progress) -> None:
        for part in self.parts:
            part.data.fetch(progress)

    def formats(self, base: Path) -> dict[str, int]:
        return sum((Counter(part.data.formats(base)) for part in self.parts), Counter())

    def fingerprint(self) -> str | None:
        """The parts' fingerprints and weights, joined; None if a part has to be read."""
        found = [part.data.fingerprint() for part in self.parts]
        if None in found:
            return None
        return CONTENT + ";".join(f"{name}*{part.weight}" for name, part in zip(found, self.parts, strict=True))
