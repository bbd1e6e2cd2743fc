"""`ablate.export`: a trained run as a transformers checkpoint with a model card; and what a plan's arms would become.

The card has question, training, results and limits. Exports of a plan are known before anything is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import zoo
from ablate.planning.plan import ArmPlan
from ablate.training.session import initial_model
from ablate.training.spec import TrainSpec
from ablate.training.trained import trained_model
from ablate.wings.named.runs import end_token, find_run
from ablate.wings.starts.lora import LoraSpec, saved_adapters
from evals.reading.passes import obstacle
from store import Store, StoreError, write_text
from store.documents import JsonObject, ResultDocument, RunDocument, StudyArm, StudyDocument, TextMeta
from store.errors import ArgumentError
from zoo.errors import UnsupportedError
from zoo.hf import REMOTE, native, save_adapters, save_with_code
from zoo.spec import parse


def export(
    run: str | Path,
    directory: str | Path,
    *,
    family: str | None = None,
    adapter: bool = False,
    push: str | None = None,
    store: str | Path = "runs",
) -> dict[str, str]:
    """Write the model of a run as a transformers checkpoint, with its tokenizer and a model card.

    If no transformers family expresses the model, the folder has a modeling file that imports this package:
    transformers opens it with `trust_remote_code=True` where ablate is installed.

    Args:
        run: the digest of a run in the store, or the beginning of one, or its place in a study (`my_study/swiglu`, for
            the first seed; `my_study/swiglu/2`), or its folder, or the name of an imported model.
        directory: a new or empty folder, which transformers' `from_pretrained` then opens.
        family: a `model_type` of transformers; None: the first that fits.
        adapter: write the low-rank adapter of a run with `train.lora` in peft's format, with its base model in
            `directory/base`, instead of merging the two.
        push: a repository of the Hugging Face hub, `USER/NAME`, to upload the folder to; a new one is private.
        store: the store's folder; not needed if `run` is a folder.

    Returns:
        `digest`, `directory` and `model_type`. For a model with our own modeling file, `model_type` is `ablate`, and
        `reason` says why no family expresses it.

    Raises:
        StoreError: there is no such run, or its model cannot be opened by transformers at all.
        ArgumentError: the folder is not empty, `adapter` is set for a run that trained all weights, or the hub cannot
            be reached.

    Example:
        >>> ablate.export("3f2a", "checkpoint")["model_type"]
        'llama'
    """
    place, found = find_run(run, store)
    target = Path(directory)
    if target.exists() and any(target.iterdir()):
        raise ArgumentError("directory", f"{target} is not empty")
    before, after = read_card(place, found, adapter)  # before any file is written
    try:
        model_type, reason = _written(place, found, target, family, adapter)
    except (UnsupportedError, ImportError) as error:
        raise StoreError(f"{found.digest}: {error}") from error
    write_text(target / "README.md", f"{before}\n\n## Use\n\n{_use(model_type, adapter)}\n\n{after}\n")
    if push is not None:
        _upload(target, push)
    answer = {"digest": found.digest, "directory": str(target), "model_type": model_type}
    return answer | ({"reason": reason} if reason else {})


def _written(store: Store, run: RunDocument, target: Path, family: str | None, adapter: bool) -> tuple[str, str]:
    """Write the checkpoint. Returns its `model_type`, and why no family expresses the model (empty if one does)."""
    end = end_token(store, run) if store.tokenizer_path(run.digest).is_file() else None  # a synthetic task has none
    reason = ""
    if adapter:
        model_type = _write_adapter(store, run, target)
    else:
        model: zoo.Decoder = trained_model(store, run.digest)
        chosen, reason = (family, "") if family else native(model)
        model_type = chosen or REMOTE
        if chosen is None:
            if obstructed := obstacle(model.spec):
                only = "and ablate's own modeling file supports only causal models"
                raise UnsupportedError("", f"the model {obstructed}: no family of transformers expresses it, {only}")
            save_with_code(model, target, context=TrainSpec.of(run).context, end=end)
        else:
            theirs = zoo.to_hf(model, family)
            from transformers.utils import logging  # noqa: PLC0415 (slow to load; to_hf reports it if missing)

            logging.disable_progress_bar()
            if end is not None:
                theirs.config.bos_token_id = theirs.config.eos_token_id = end
            theirs.save_pretrained(target)
    if end is not None:
        for folder in (target, target / "base") if adapter else (target,):
            _tokenizer(store, run, end).save_pretrained(folder)
    return model_type, reason


def _write_adapter(store: Store, run: RunDocument, target: Path) -> str:
    """Write the adapter and its base. Returns the base's `model_type`. Raises ArgumentError without an adapter."""
    lora = TrainSpec.of(run).part
    if not isinstance(lora, LoraSpec):
        raise ArgumentError("adapter", f"{run.digest} trained all weights, so it has no adapter")
    tensors = saved_adapters(store.model_dir(run.digest))
    names = [name.removesuffix(".down") for name in tensors if name.endswith(".down")]
    pairs = {name: (tensors[f"{name}.down"], tensors[f"{name}.up"]) for name in names}
    return save_adapters(initial_model(store, run), pairs, lora.alpha, target)


def _tokenizer(store: Store, run: RunDocument, end: int) -> Any:
    """The run's tokenizer. A document begins and ends with the same token, as in training."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 (slow to load)

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(store.tokenizer_path(run.digest)))
    eos = tokenizer.convert_ids_to_tokens(end)
    tokenizer.add_special_tokens({"bos_token": eos, "eos_token": eos, "pad_token": eos})
    return tokenizer


def _upload(folder: Path, repository: str) -> None:
    """Upload a folder to `USER/NAME`, created as a private repository if it is missing. Raises ArgumentError."""
    from huggingface_hub import HfApi  # noqa: PLC0415 (slow to load)
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    api = HfApi()
    # The error of the HTTP client that huggingface_hub uses is a base of its own error.
    refusals: tuple[type[Exception], ...] = (HFValidationError, OSError, *HfHubHTTPError.__bases__)
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=str(folder), commit_message="Exported by ablate")
    except refusals as error:
        said = str(error).strip().partition("\n")[0]
        upload = f"`hf auth login` and `hf upload {repository} {folder} --private`"
        reason = f"{said}: {folder} is written; once the hub can be reached, upload it with {upload}"
        raise ArgumentError("push", reason, repository) from error


def read_card(store: Store, run: RunDocument, adapter: bool) -> tuple[str, str]:
    """The card of a finished run, in Markdown with the Hugging Face hub's metadata: its text before and after the
    section on use, which depends on the exported `model_type`. Raises StoreError if the run's documents cannot be
    read."""
    result = store.read_result(run.digest)
    assert result is not None  # the run has finished
    # The first study that the run belongs to, and its arm there.
    arms = ((study, arm) for study in store.study_documents() for arm in study.arms)
    found = next((each for each in arms if any(known.digest == run.digest for known in each[1].runs)), None)
    title = f"{found[0].name}: {found[1].name}" if found else f"Run {run.digest}"
    task = [] if obstacle(parse(run.model)) else ["pipeline_tag: text-generation"]
    library = f"library_name: {'peft' if adapter else 'transformers'}"
    before = ["\n".join(["---", library, *task, "tags: [ablate]", "---", f"# {title}"]), *_question(found, run)]
    after = [
        "## Training\n\n" + _lines(_training(store, run, result, found[1] if found else None)),
        "## Results\n\n" + _lines(_results(store, run, result)),
        "## Limits\n\n" + _limits(run, result),
    ]
    return "\n\n".join(before), "\n\n".join(after)


def _question(found: tuple[StudyDocument, StudyArm] | None, run: RunDocument) -> Iterator[str]:
    if run.imported is not None:
        yield "A model that was trained elsewhere, imported and measured by ablate."
        return
    yield "A small language model that ablate trained to compare architectures."
    if found is not None:
        study, arm = found
        edits = ", ".join(f"`{path}: {value}`" for path, value in arm.edits.items()) or "none, it is the baseline"
        yield f"**Question:** {study.question}"
        yield f"**Arm:** {arm.name} of the study {study.name} at scale {study.scale}; edits of the base: {edits}."


def _use(model_type: str, adapter: bool) -> str:
    if adapter:
        return "An adapter for peft; its base model is in `base/`."
    if model_type != REMOTE:
        return "`AutoModelForCausalLM.from_pretrained(DIR)`: the architecture is one of transformers' own."
    return (
        "`AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True)`, with the package ablate installed: "
        "transformers has no such architecture, so `modeling_ablate.py` builds it from `config.json`. "
        "`zoo.from_hf(DIR)` loads the same model without running code from this folder."
    )


def _training(
    store: Store, run: RunDocument, result: ResultDocument, arm: StudyArm | None
) -> Iterator[tuple[str, str]]:
    yield "parameters", f"{result.parameters:,}, of which {result.parameters_embedding:,} are embeddings"
    yield "context", f"{TrainSpec.of(run).context} tokens"
    meta = store.data(run.data.digest).read() if store.data(run.data.digest).is_known else None
    if meta is not None:
        yield "text" if isinstance(meta, TextMeta) else "task", f"`{meta.spec['source']}` (data {run.data.digest[:8]})"
    # Sources of the model other than its text. The run's own counts exclude their training.
    if arm is not None and arm.checkpoint is not None:
        yield "started from", f"the checkpoint `{arm.checkpoint}`, whose training is not counted here"
    if arm is not None and arm.tokens_before:
        yield "started from", f"another arm, already trained on {arm.tokens_before:,} tokens"
    if arm is not None and arm.teacher is not None:
        yield "distilled from", f"`{arm.teacher}`, whose training is not counted here"
    if run.imported is None:
        size = arm.parameters_non_embedding if arm else result.parameters - result.parameters_embedding
        ratio = f"{result.tokens / size:.3g} per parameter outside them and the head"
        yield "budget", f"{result.tokens:,} tokens in {result.steps:,} steps, {ratio}; {result.flops:.3g} FLOPs"
        yield "seed", str(run.seed)
    yield "run", f"`{run.digest}`, by ablate {result.environment.ablate}"


def _results(store: Store, run: RunDocument, result: ResultDocument) -> Iterator[tuple[str, str]]:
    if result.loss is not None:
        yield "held-out loss", f"{result.loss:.4f} nats per scored target"
    if result.bits_per_byte is not None:
        yield "bits per byte", f"{result.bits_per_byte:.4f}"
    if result.accuracy is not None:
        yield "accuracy", f"{result.accuracy:.4f}"
    for document in store.all_evals(run.digest):
        for task, metrics in document.scores.items():
            for metric, score in metrics.items():
                if score.value is not None:
                    error = "" if score.stderr is None else f" ± {_number(score.stderr)}"
                    yield f"{task}, {metric}", f"{_number(score.value)}{error}"


def _number(value: float) -> str:
    """Four decimals; from 10,000 on, as in a perplexity per word, five significant digits."""
    return f"{value:.4f}" if abs(value) < 10_000 else f"{value:.5g}"


def _limits(run: RunDocument, result: ResultDocument) -> str:
    if run.imported is not None:
        return "How it was trained is not recorded here: see the card of the original model."
    return (
        f"One seed of one arm, trained on {result.tokens:,} tokens for comparison with the other arms at an "
        "equal budget, not for use. Its loss alone does not answer the question; the study's report does, with "
        "intervals over seeds. ± is a standard error over items of one model."
    )


def _lines(rows: Iterator[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def exports(arms: Sequence[ArmPlan]) -> dict[str, JsonObject]:
    """Exports by arm: the model_type of transformers (`ablate` with our own modeling file, or null), and why no family
    fits. Empty if transformers is not installed. The first call takes seconds to load it."""
    if find_spec("transformers") is None:
        return {}
    from zoo.hf import REMOTE, native  # noqa: PLC0415 (slow to load)

    found: dict[str, JsonObject] = {}
    for arm in arms:
        family, reason = native(arm.spec)
        kind = REMOTE if family is None and obstacle(arm.spec) is None else family
        found[arm.name] = {"model_type": kind, "reason": reason or None}
    return found


def lines(found: Mapping[str, JsonObject]) -> Iterator[str]:
    """`exports: pre as llama; post, double with ablate's modeling file (…)`."""
    by: dict[object, list[str]] = {}
    for arm, each in found.items():
        by.setdefault(each["model_type"], []).append(arm)
    if by:
        from zoo.hf import REMOTE  # noqa: PLC0415 (slow to load)

        said: dict[object, str] = {
            REMOTE: "with ablate's modeling file (trust_remote_code), since no family of transformers fits",
            None: "cannot be exported: ablate's modeling file supports only causal models",
        }
        yield "exports: " + "; ".join(f"{', '.join(arms)} {said.get(kind, f'as {kind}')}" for kind, arms in by.items())
