"""Saved models in lm-eval: importing this module registers `zoo` as a model of lm-eval.

    import evals.harness.lm_eval_model
    lm_eval.simple_evaluate(model="zoo", model_args={"path": "runs/0123456789abcdef"}, tasks=["lambada_openai"])

and from a shell `python -m evals lm-eval --model zoo --model_args path=runs/0123456789abcdef --tasks lambada_openai`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import torch
from lm_eval.api.registry import register_model
from lm_eval.utils import simple_parse_args_string
from tokenizers import Tokenizer

import zoo
from evals.conventions import Bos
from evals.harness.lm import Encoded, ZooLM
from evals.harness.published import Published
from store import Store, jsonfile
from store.documents import RunDocument, TextMeta

OWNER = "ablate: whose answers these are"
Arguments: TypeAlias = Mapping[str, Any]
"""`--model_args`, by the parameter names of `SavedZooLM`."""


class ModelFolderError(ValueError):
    """A folder has no model that can score text, or not with these arguments."""


@register_model("zoo")
class SavedZooLM(ZooLM):
    """A model that `zoo.save` wrote, with the tokenizer.json beside it.

    path: the folder of a run, or one with spec.json, weights.safetensors and tokenizer.json.
    device: `cpu`, `cuda`, `cuda:1` …; by default a GPU if there is one.
    dtype: `bfloat16` for autocast; by default the precision of the run's training, else float32.
    context: tokens read at once; by default the run's training context.
    eos: the token that ends a document; by default that of the run's corpus, else the tokenizer's only special token.
        A model that was trained elsewhere follows its own conventions unless `eos` is given.
    bos: `auto`, `on` or `off`, as in a study.
    batch_size: rows per forward pass, or `auto`. max_batch_size is ignored, since no batch size is tried out.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (each is an argument of the command line)
        self,
        path: str,
        device: str | None = None,
        dtype: Literal["float32", "bfloat16"] | None = None,
        context: int | None = None,
        eos: str | int | None = None,
        bos: Bos | bool = "auto",
        batch_size: int | str = "auto",
        max_batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        folder, run = _folder(Path(path).expanduser())
        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if where.startswith("cuda") and not torch.cuda.is_available():
            raise ModelFolderError(f"device={where}: no GPU is available")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        begins: Bos = ("on" if bos else "off") if isinstance(bos, bool) else bos
        read = context if context or run is None else run.train.get("context")
        if not isinstance(read, int):
            raise ModelFolderError(f"{folder} does not belong to a run: set the context, e.g. context=1024")
        published = folder.parent / "published"
        own = run is not None and run.conventions is not None and eos is None
        super().__init__(
            zoo.open(folder, device=where),
            Published.read(published, begins) if own else tokenizer,
            context=read,
            eos=None if own else _eos(folder, run, tokenizer, eos),
            bos=begins,
            batch="auto" if str(batch_size).startswith("auto") else int(batch_size),
            seed=seed,
        )
        self.dtype = dtype or ("float32" if run is None else run.numerics.dtype)
        if self.dtype not in ("float32", "bfloat16"):
            raise ModelFolderError(f"dtype={self.dtype}: expected float32 or bfloat16")

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Arguments, additional_config: Arguments | None = None) -> Self:
        """Model from `--model_args`, which override lm-eval's options. Its default `--device`, a GPU, is ignored if
        there is none."""
        options = {key: value for key, value in (additional_config or {}).items() if value is not None}
        if str(options.get("device")).startswith("cuda") and not torch.cuda.is_available():
            del options["device"]
        return cls(**{**options, **arg_dict})

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Arguments | None = None) -> Self:
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    def _loglikelihood_tokens(self, requests: Sequence[Encoded], **options: Any) -> list[tuple[float, bool]]:
        with self._autocast():
            return super()._loglikelihood_tokens(requests, **options)

    def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
        with self._autocast():
            return super().generate_until(requests, disable_tqdm)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.dtype == "bfloat16")

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Raise ModelFolderError for lm-eval's `--use_cache` file of another model: its keys are only the questions."""
        answers = cache_hook.dbdict
        if answers is not None:
            with self._autocast():
                mine = self._owner
            if len(answers) and answers.get(OWNER) != mine:
                raise ModelFolderError(
                    "the cache holds the answers of another model: use a separate file for each model"
                )
            answers[OWNER] = mine
        super().set_cache_hook(cache_hook)


def _folder(path: Path) -> tuple[Path, RunDocument | None]:
    """Folder of the model, and the run.json beside it if there is one. Raises ModelFolderError."""
    folder = path if (path / "spec.json").is_file() else path / "model"
    for name in ("spec.json", "weights.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ModelFolderError(f"{path}: neither this folder nor its model/ holds a model: {name} is missing")
    run = jsonfile.read(folder.parent / "run.json", RunDocument, f"copy {folder} elsewhere to read it without its run")
    return folder, run


def _eos(folder: Path, run: RunDocument | None, tokenizer: Tokenizer, given: str | int | None) -> int:
    if given is not None:
        found = given if isinstance(given, int) else tokenizer.token_to_id(given)
        if found is None or tokenizer.id_to_token(found) is None:
            raise ModelFolderError(f"eos={given}: the tokenizer has no such token")
        return int(found)
    corpus = None if run is None else Store(folder.parents[1]).data(run.data.digest)
    if corpus is not None and corpus.document_path.is_file() and isinstance(meta := corpus.read(), TextMeta):
        return meta.eos
    special = [index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    if len(special) != 1:
        raise ModelFolderError(f"{folder}: unknown end-of-document token: set it, e.g. eos=<|endoftext|>")
    return int(special[0])
