"""The model card of an exported run: question, training, results and limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ablate.training.spec import TrainSpec
from evals.reading.passes import obstacle
from store import Store
from store.documents import ResultDocument, RunDocument, StudyArm, StudyDocument, TextMeta
from zoo.hf import REMOTE
from zoo.spec import parse


@dataclass(frozen=True)
class ModelCard:
    """A model card in Markdown with the Hugging Face hub's metadata: the text before and after the section on use.
    Both are read before any file is written; only the section on use depends on the exported `model_type`."""

    before: str
    after: str
    adapter: bool

    def text(self, model_type: str) -> str:
        """The card of a model that was exported as this type."""
        return "\n\n".join([self.before, "## Use\n\n" + _use(model_type, self.adapter), self.after]) + "\n"


def read_card(store: Store, run: RunDocument, adapter: bool = False) -> ModelCard:
    """The card of a finished run. Raises StoreError if the run's documents cannot be read."""
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
    return ModelCard("\n\n".join(before), "\n\n".join(after), adapter)


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
