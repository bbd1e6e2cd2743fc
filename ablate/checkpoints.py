"""Models that were trained elsewhere: where they lie, what they are, and their copies in a store."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import zoo
from ablate.data import DataError
from ablate.data.paths import expanded
from ablate.store import AblateError, Store, sums
from ablate.store.documents import JsonObject
from zoo.checkpoint import read_json

if TYPE_CHECKING:
    from evals.harness.conventions import Bos, Published
    from zoo.model import Decoder

WEIGHTS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
    "adapter_model.bin",
)
CONFIGS = ("config.json", "spec.json", "adapter_config.json")

TOKENIZERS = {"file": "tokenizer.json", "sentencepiece": "tokenizer.model"}
"""Files that are read, by kind of `data.tokenizer`, in order of preference."""

CONTENT = (*CONFIGS, *WEIGHTS)

PUBLISHED = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json", "config.json"),
)
"""Files that say how transformers reads and writes text with a model."""


class CheckpointError(AblateError):
    """A folder is no checkpoint that can be used. The text says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A model in a folder: as transformers saves it, or an adapter of it as peft does, as `zoo.save` does, or a run's.

    Example:
        >>> Checkpoint.at("checkpoints/SmolLM2-135M", Path()).spec.n_layers
        30
    """

    folder: Path

    @classmethod
    def at(cls, path: str | Path, base: Path) -> Checkpoint:
        """The checkpoint at a path, which starts from `base` where it is relative. Raises CheckpointError."""
        try:
            folder = expanded(str(path), base).resolve()
        except DataError as error:
            raise CheckpointError(str(error)) from error
        if not folder.is_dir():
            raise CheckpointError(f"there is no folder {folder} (a stored run is named by its own, STORE/DIGEST)")
        found = next((each for each in (folder, folder / "model") if _files(each, CONFIGS)), None)
        if found is None:
            raise CheckpointError(f"{folder} has no config.json of transformers, and is no trained run")
        if not _files(found, WEIGHTS):
            raise CheckpointError(f"{found} has no weights (*.safetensors)")
        return cls(found)

    @cached_property
    def spec(self) -> zoo.ModelSpec:
        """Read from its config alone. Raises CheckpointError."""
        from zoo.hf import spec_of  # noqa: PLC0415 (slow to load, and few studies name a checkpoint)

        try:
            own = self.folder / "spec.json"
            return zoo.parse(read_json(own)) if own.exists() else spec_of(self.folder)
        except (zoo.SpecError, ImportError) as error:
            raise CheckpointError(f"{self.folder}: {error}") from error

    @property
    def model(self) -> JsonObject:
        """The spec as the base of a study, whose edits of `block` are edits of every layer that is like it."""
        plain = self.spec.dump()
        if set(plain.get("pattern") or ()) <= {"block"}:
            plain.pop("pattern", None)
        return plain

    @property
    def _base(self) -> Path:
        """Where the weights are that an adapter belongs to; else the folder itself. Raises CheckpointError."""
        from zoo.hf import base_of  # noqa: PLC0415 (as above)

        try:
            return base_of(self.folder)
        except zoo.UnsupportedError as error:
            raise CheckpointError(str(error)) from error

    @property
    def digest(self) -> str:
        """Names its copy in a store: 16 hex digits of the sha256 of its config and weights."""
        files = [file for folder in dict.fromkeys((self.folder, self._base)) for file in _files(folder, CONTENT)]
        return _digest(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files))

    @property
    def tokenizer(self) -> JsonObject | None:
        """Its tokenizer, as a study's `data.tokenizer` names it; None where the folder has none that is read.

        Raises CheckpointError.
        """
        for kind, name in TOKENIZERS.items():
            for folder in dict.fromkeys((self.folder, self._base)):
                if (path := folder / name).is_file():
                    eos = _end_of_text(folder)
                    return {"kind": kind, "path": str(path), **({"eos": eos} if eos else {})}
        for folder in dict.fromkeys((self.folder, self._base)):
            if all((folder / name).is_file() for name in ("vocab.json", "merges.txt")):
                eos = _end_of_text(folder)
                return {"kind": "transformers", "path": str(folder), **({"eos": eos} if eos else {})}
        return None

    @cached_property
    def published(self) -> tuple[Path, ...]:
        """Files by which transformers reads text with it; none of a model that was trained here, or where it cannot.

        Those of an adapter come before those of its base.
        """
        if (self.folder / "spec.json").exists():
            return ()
        folders = dict.fromkeys((self.folder, self._base))
        places = (next((at / name for at in folders if (at / name).is_file()), None) for name in PUBLISHED)
        return tuple(path for path in places if path is not None)

    @cached_property
    def conventions(self) -> str | None:
        """Digest of these files; None where there are none, or transformers can make no tokenizer of them."""
        if self.read_as_published() is None:
            return None
        return _digest(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in self.published))

    def read_as_published(self, bos: Bos = "auto") -> Published | None:
        """Rules of these files by which text becomes tokens; None as for `conventions`."""
        return self._by_custom if bos == "auto" else self._read_as_published(bos)

    @cached_property
    def _by_custom(self) -> Published | None:
        return self._read_as_published("auto")

    def _read_as_published(self, bos: Bos) -> Published | None:
        if not self.published:
            return None
        from evals.harness.conventions import Published  # noqa: PLC0415 (slow to load)

        with TemporaryDirectory() as folder:
            for path in self.published:
                shutil.copyfile(path, Path(folder) / path.name)
            try:
                return Published.read(Path(folder), bos)
            except ValueError:
                return None

    @property
    def receipt(self) -> list[str]:
        """Lines that say what is taken of it: model, adapter and tokenizer. Raises CheckpointError."""
        name, size = f"checkpoint {self.folder.name}", f"{zoo.cost(self.spec).params:,} parameters"
        adapter = self._settings(self.folder / "adapter_config.json")
        kind = self._settings(self._base / "config.json").get("model_type")
        lines = [f"{name}: {kind or 'a model saved by ablate'}, {size}"]
        if adapter:
            parts = adapter.get("target_modules")
            where = ", ".join(sorted(map(str, parts))) if isinstance(parts, list) else parts
            lines.append(f"{name}: adapter of peft, rank {adapter.get('r')} on {where}, merged into {self._base}")
        if self.tokenizer is None:
            return [*lines, self.without_tokenizer]
        lines.append(f"{name}: tokenizer {Path(str(self.tokenizer['path'])).name}{self._begins}")
        return lines

    @property
    def _begins(self) -> str:
        """Tokens that its tokenizer puts before a text."""
        how = self.read_as_published()
        if how is None or not how.before:
            return ""
        return f"; its texts begin with {how.decode(how.before, skip_special_tokens=False)}"

    @staticmethod
    def _settings(path: Path) -> JsonObject:
        """A file of settings; nothing where there is none."""
        found = read_json(path) if path.is_file() else {}
        return found if isinstance(found, dict) else {}

    @property
    def without_tokenizer(self) -> str:
        """Why it has no tokenizer, and what to do."""
        return f"{self.folder} has no {', no '.join(TOKENIZERS.values())}, and no vocab.json with merges.txt"

    def load(self) -> Decoder:
        """Raises CheckpointError."""
        try:
            own = (self.folder / "spec.json").exists()
            return zoo.open(self.folder) if own else zoo.from_hf(self.folder)
        except (zoo.SpecError, ImportError) as error:
            raise CheckpointError(f"{self.folder}: {error}") from error

    def copy_to(self, store: Store) -> None:
        """Copy it to a store, unless it is there."""
        folder = store.checkpoint_dir(self.digest)
        if folder.is_dir():
            return
        model = self.load()
        with store.replacing(folder) as work:
            zoo.save(model, work)
            sums.write(work, folder, names=3)


def _files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Files alone: a device may have no end."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


@cache
def _digest(stamps: tuple[tuple[Path, int, int], ...]) -> str:
    """Hashed once for each size and time of the files."""
    whole = hashlib.sha256()
    for path, _, _ in stamps:
        with path.open("rb") as file:
            whole.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()[:16]


def _end_of_text(folder: Path) -> str | None:
    """The token that ends a document, where transformers' file says it."""
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return None
    try:
        settings = read_json(path)
    except (OSError, zoo.SpecError) as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path} holds no settings, but {str(settings)[:20]}: delete it or mend it")
    token: Any = settings.get("eos_token")
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None
