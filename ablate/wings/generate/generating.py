"""`ablate.generate`: continue a prompt, or fill its holes, with the model of a trained run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

import zoo
from ablate.training.execution import Count
from ablate.training.objectives._holes import Filling, FillsHoles, HolesError
from ablate.training.spec import TrainSpec
from ablate.training.trained import conventions_of, trained_model, trained_tokenizer
from ablate.wings.named.runs import end_token, find_run
from evals.conventions import Conventions
from evals.costs.memory import is_out_of_memory
from evals.evaluations._decoding import GenerationRequest, decode
from evals.reading.passes import obstacle
from store import AblateError, StoreError
from store.errors import ArgumentError
from zoo.decode import Sampling
from zoo.settings.explain import checked
from zoo.spec import longest_text

MOST_TOKENS = 2**40
"""More tokens than fit in any memory, and far below 2**63, the limit of tensor sizes."""
NEW = 64
"""Default maximum number of tokens that continue a prompt."""
HOLE = "___"
"""Default marker of a hole in the prompt."""


@dataclass(frozen=True)
class Generated:
    """A prompt with the text that a model generated for it.

    Attributes:
        digest: the run's digest.
        prompt: the prompt as given.
        text: the prompt with the generated text, after it or in its holes.
        new: the generated text: one continuation, or a text for each hole.
        fills_holes: whether the model fills in holes, rather than continuing a text.
    """

    digest: str
    prompt: str
    text: str
    new: tuple[str, ...]
    fills_holes: bool


@dataclass(frozen=True)
class _Trained:
    """A run with everything needed to generate."""

    digest: str
    model: zoo.Decoder
    tokenizer: Tokenizer
    conventions: Conventions
    train: TrainSpec


def generate(
    run: str | Path,
    prompts: str | Sequence[str],
    *,
    tokens: Count | None = None,
    stop: Sequence[str] = (),
    hole: str | None = None,
    seed: int = 0,
    store: str | Path = "runs",
    **sampling: float | None,
) -> list[Generated]:
    """Continue prompts with the model of a trained run, or fill in their holes.

    Args:
        run: the digest of a run in the store, or the beginning of one, or its place in a study (`my_study/swiglu`, for
            the first seed; `my_study/swiglu/2`), or its folder.
        prompts: one or more prompts.
        tokens: maximum number of new tokens (None: 64), or of tokens in each hole; for a model trained with `masked`,
            the exact number (None: 1).
        stop: strings that end the text; they are cut off.
        hole: the marker of holes, for models that fill holes; None: `___`.
        seed: seed of sampling.
        store: the store's folder; not needed if `run` is a folder.
        **sampling: `temperature` (default 0: greedy), `top_k`, `top_p`, `min_p` and `repetition_penalty`.

    Returns:
        A `Generated` for each prompt, in order.

    Raises:
        StoreError: there is no such run, or nothing can be generated from it.
        ArgumentError: an argument cannot be used with this model.
        AblateError: the texts exceed the model's positions or the memory.

    Example:
        >>> ablate.generate("3f2a", "def f(", temperature=0.8, top_p=0.95)[0].text
    """
    texts = [prompts] if isinstance(prompts, str) else list(prompts)
    if not texts:
        raise ArgumentError("prompts", "needs at least one prompt")
    trained = _trained(run, store)
    try:
        chosen = checked(Sampling, {name: value for name, value in sampling.items() if value is not None})
    except zoo.SpecError as error:
        raise ArgumentError(error.path, error.reason) from error
    with torch.inference_mode(), _in_memory():
        if isinstance(trained.train.objective, FillsHoles):
            if stop:
                raise ArgumentError("stop", "only ends continuations, but this model fills holes: use tokens")
            return _filled(
                trained, trained.train.objective, texts, HOLE if hole is None else hole, tokens, chosen, seed
            )
        if hole is not None:
            kind = trained.train.objective.kind
            raise ArgumentError("hole", f"a model trained with {kind} continues text and cannot fill holes")
        return _continued(trained, texts, tokens or NEW, tuple(stop), chosen, seed)


def _trained(run: str | Path, root: str | Path) -> _Trained:
    store, found = find_run(run, root)
    digest = found.digest
    if not store.tokenizer_path(digest).is_file():
        raise StoreError(f"{digest}: trained on a synthetic task, so it has no tokenizer for prompts")
    model, tokenizer = trained_model(store, digest).eval(), trained_tokenizer(store, digest)
    conventions = conventions_of(store, found, end_token(store, found))
    return _Trained(digest, model, tokenizer, conventions, TrainSpec.of(found))


@contextmanager
def _in_memory() -> Iterator[None]:
    """Raise AblateError if the block runs out of memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        raise AblateError("out of memory: ask for fewer tokens") from error


def _continued(
    trained: _Trained, prompts: list[str], new: int, stop: tuple[str, ...], sampling: Sampling, seed: int
) -> list[Generated]:
    model, how = trained.model, trained.conventions
    if reason := obstacle(model.spec):
        raise StoreError(f"{trained.digest}: the model {reason}, so it cannot continue a prompt")
    requests = [
        GenerationRequest(place, how.encode(prompt) or [how.first], (*stop, *how.stops), new, sampling)
        for place, prompt in enumerate(prompts)
    ]
    longest = longest_text(model.spec)
    # The last new token is never an input.
    needed = max(len(request.prompt) + request.max_new - 1 for request in requests)
    if needed > MOST_TOKENS:
        raise AblateError("out of memory: ask for fewer tokens")
    if longest is not None and needed > longest:
        raise AblateError(f"prompt and new tokens are {needed + 1} tokens, but the model has positions for {longest}")
    texts = decode(model, how, requests, seed=seed)
    return [
        Generated(trained.digest, prompt, prompt + text, (text,), fills_holes=False)
        for prompt, text in zip(prompts, texts, strict=True)
    ]


def _filled(
    trained: _Trained,
    objective: FillsHoles,
    prompts: list[str],
    mark: str,
    new: int | None,
    sampling: Sampling,
    seed: int,
) -> list[Generated]:
    tokenizer = trained.tokenizer
    context, vocabulary = trained.train.context, tokenizer.get_vocab_size()
    cut = [_pieces(prompt, mark) for prompt in prompts]
    found = []
    for number, (prompt, pieces) in enumerate(zip(prompts, cut, strict=True)):
        draw = torch.Generator().manual_seed(seed * 1_000_003 + number)  # independent of the other prompts
        how = Filling(new or objective.new, context, vocabulary, sampling, draw)
        try:
            filled = objective.fill(trained.model, [tokenizer.encode(piece).ids for piece in pieces], how)
        except HolesError as error:
            raise ArgumentError("prompt", str(error), repr(prompt)) from error
        fills = tuple(tokenizer.decode(tokens, skip_special_tokens=False) for tokens in filled)
        text = pieces[0] + "".join(hole + piece for hole, piece in zip(fills, pieces[1:], strict=True))
        found.append(Generated(trained.digest, prompt, text, fills, fills_holes=True))
    return found


def _pieces(prompt: str, mark: str) -> list[str]:
    """The text before, between and after the holes. Raises ArgumentError if there are none."""
    if not mark:
        raise ArgumentError("hole", "must not be empty")
    if mark not in prompt:
        reason = f"has no {mark} marker, but this model only fills holes (hole sets another marker)"
        raise ArgumentError("prompt", reason, repr(prompt))
    return prompt.split(mark)
