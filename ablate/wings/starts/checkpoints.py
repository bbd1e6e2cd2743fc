"""Checkpoints of models that were trained elsewhere: their files, specs and tokenizers, and their copies in a store."""

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
from store import AblateError, Store, replacing, stamps
from store.documents import JsonObject
from zoo.checkpoint import read_json

if TYPE_CHECKING:
    from evals.conventions import Bos
    from evals.harness.published import Published
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
"""Tokenizer files by kind of `data.tokenizer`, in order of preference."""

CONTENT = (*CONFIGS, *WEIGHTS)

PUBLISHED = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json", "config.json"),
)
"""Files that tell transformers how to tokenise and generate text with a model."""


class CheckpointError(AblateError):
    """A folder is not a usable checkpoint. The message says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A model in a folder, as saved by transformers, by `zoo.save` or by a run; or an adapter, as saved by peft.

    Example:
        >>> Checkpoint.at("checkpoints/SmolLM2-135M", Path()).spec.n_layers
        30
    """

    folder: Path

    @classmethod
    def at(cls, path: str | Path, base: Path) -> Checkpoint:
        """The checkpoint at `path`, relative to `base`, or in the folder `model` below it. Raises CheckpointError."""
        try:
            folder = expanded(str(path), base).resolve()
        except DataError as error:
            raise CheckpointError(str(error)) from error
        if not folder.is_dir():
            raise CheckpointError(f"there is no folder {folder} (for a stored run, give STORE/DIGEST)")
        found = next((each for each in (folder, folder / "model") if _files(each, CONFIGS)), None)
        if found is None:
            raise CheckpointError(f"{folder} is neither a transformers checkpoint (no config.json) nor a trained run")
        if not _files(found, WEIGHTS):
            raise CheckpointError(f"{found} has no weights (*.safetensors)")
        return cls(found)

    @cached_property
    def spec(self) -> zoo.ModelSpec:
        """The model's spec, read from the config without loading weights. Raises CheckpointError."""
        from zoo.hf import spec_of  # noqa: PLC0415 (slow to load, and few studies name a checkpoint)

        try:
            own = self.folder / "spec.json"
            return zoo.parse(read_json(own)) if own.exists() else spec_of(self.folder)
        except (zoo.SpecError, ImportError) as error:
            raise CheckpointError(f"{self.folder}: {error}") from error

    @property
    def model(self) -> JsonObject:
        """The spec as a study's base model, without `pattern` if all layers are `block`: edits of `block` reach all."""
        plain = self.spec.dump()
        if set(plain.get("pattern") or ()) <= {"block"}:
            plain.pop("pattern", None)
        return plain

    @property
    def _base(self) -> Path:
        """Folder of an adapter's base model; of any other checkpoint the folder itself. Raises CheckpointError."""
        from zoo.hf import base_of  # noqa: PLC0415 (as above)

        try:
            return base_of(self.folder)
        except zoo.UnsupportedError as error:
            raise CheckpointError(str(error)) from error

    @property
    def digest(self) -> str:
        """16 hex digits of a sha256 over config and weights, an adapter's base included. Names the copy in a store."""
        files = [file for folder in dict.fromkeys((self.folder, self._base)) for file in _files(folder, CONTENT)]
        return _digest(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files))

    @property
    def tokenizer(self) -> JsonObject | None:
        """The tokenizer in the form of a study's `data.tokenizer`; None if the folder has no supported one.

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
        """Files with which transformers tokenises for this model; empty for a model saved by ablate (`spec.json`).

        A file in an adapter's folder takes precedence over the same file of its base.
        """
        if (self.folder / "spec.json").exists():
            return ()
        folders = dict.fromkeys((self.folder, self._base))
        places = (next((at / name for at in folders if (at / name).is_file()), None) for name in PUBLISHED)
        return tuple(path for path in places if path is not None)

    @cached_property
    def conventions(self) -> str | None:
        """Digest of the `published` files; None if there are none, or transformers can build no tokenizer from them."""
        if self.read_as_published() is None:
            return None
        return _digest(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in self.published))

    def read_as_published(self, bos: Bos = "auto") -> Published | None:
        """Tokenisation rules of the `published` files; None as for `conventions`."""
        return self._by_custom if bos == "auto" else self._read_as_published(bos)

    @cached_property
    def _by_custom(self) -> Published | None:
        return self._read_as_published("auto")

    def _read_as_published(self, bos: Bos) -> Published | None:
        if not self.published:
            return None
        with TemporaryDirectory() as folder:
            for path in self.published:
                shutil.copyfile(path, Path(folder) / path.name)
            try:
                return published(Path(folder), bos)
            except ValueError:
                return None

    @property
    def receipt(self) -> list[str]:
        """Lines that name the model, adapter and tokenizer that are used. Raises CheckpointError."""
        name, size = f"checkpoint {self.folder.name}", f"{zoo.cost(self.spec).params:,} parameters"
        adapter = self._settings(self.folder / "adapter_config.json")
        kind = self._settings(self._base / "config.json").get("model_type")
        lines = [f"{name}: {kind or 'a model saved by ablate'}, {size}"]
        if adapter:
            parts = adapter.get("target_modules")
            where = ", ".join(sorted(map(str, parts))) if isinstance(parts, list) else parts
            lines.append(f"{name}: peft adapter, rank {adapter.get('r')} on {where}, merged into {self._base}")
        if self.tokenizer is None:
            return [*lines, self.without_tokenizer]
        lines.append(f"{name}: tokenizer {Path(str(self.tokenizer['path'])).name}{self._begins}")
        return lines

    @property
    def _begins(self) -> str:
        """Note on the tokens that the tokenizer prepends to every text; empty if there are none."""
        how = self.read_as_published()
        if how is None or not how.before:
            return ""
        return f"; begins every text with {how.decode(how.before, skip_special_tokens=False)}"

    @staticmethod
    def _settings(path: Path) -> JsonObject:
        """The JSON object in a file; empty if the file is missing or holds no object."""
        found = read_json(path) if path.is_file() else {}
        return found if isinstance(found, dict) else {}

    @property
    def without_tokenizer(self) -> str:
        """Message that names the missing tokenizer files."""
        return f"{self.folder} has no {', no '.join(TOKENIZERS.values())}, and no vocab.json with merges.txt"

    def load(self) -> Decoder:
        """The model with its weights. Raises CheckpointError."""
        try:
            own = (self.folder / "spec.json").exists()
            return zoo.open(self.folder) if own else zoo.from_hf(self.folder)
        except (zoo.SpecError, ImportError) as error:
            raise CheckpointError(f"{self.folder}: {error}") from error

    def copy_to(self, store: Store) -> None:
        """Save the model to a store, as `zoo.save` does, unless the store has it. Raises CheckpointError."""
        folder = store.checkpoint_dir(self.digest)
        if folder.is_dir():
            return
        model = self.load()
        with replacing(folder) as work:
            zoo.save(model, work)
            stamps.write(work, folder, names=3)


def _files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Regular files that match a pattern: reading a device may never end."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


@cache
def _digest(stamps: tuple[tuple[Path, int, int], ...]) -> str:
    """16 hex digits of a sha256 over names and contents of files, cached by (path, size, mtime in ns)."""
    whole = hashlib.sha256()
    for path, _, _ in stamps:
        with path.open("rb") as file:
            whole.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()[:16]


def _end_of_text(folder: Path) -> str | None:
    """The EOS token in `tokenizer_config.json`, if any. Raises CheckpointError if that file is damaged."""
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return None
    try:
        settings = read_json(path)
    except (OSError, zoo.SpecError) as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path} must be a JSON object, not {str(settings)[:20]}: fix or delete it")
    token: Any = settings.get("eos_token")
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def published(folder: Path, bos: Bos) -> Published:
    """Conventions of the model whose tokenizer's files are in a folder. Raises ValueError if they cannot be read."""
    from evals.harness.published import Published  # noqa: PLC0415 (slow to load)

    return Published.read(folder, bos)
