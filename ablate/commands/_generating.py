"""`ablate generate`: what a stored model says."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import zoo
from ablate.cli import DONE, InputError
from ablate.commands import print_json
from ablate.commands._filling import fill
from ablate.commands._runs import end_token, find_run
from ablate.commands.generate import SAMPLING
from ablate.training.objectives._filling import FillsHoles
from ablate.training.spec import TrainSpec
from ablate.training.trained import trained_model, trained_tokenizer
from evals.costs.memory import is_out_of_memory
from evals.harness.decode import Request, decode
from evals.reading.causal import obstacle
from zoo.costs import longest_text
from zoo.decode import Sampling
from zoo.explain import checked

NEW = 64
"""Tokens that continue a prompt, unless told."""


def generate(options: argparse.Namespace) -> int:
    store, digest = find_run(options.run, Path(options.store))
    path = store.model_dir(digest) / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{digest}: its data are made and not read from text, so there is no tokenizer for a prompt")
    eos, tokenizer = end_token(store, digest), trained_tokenizer(store, digest)
    asked = {name: getattr(options, name) for name in SAMPLING if getattr(options, name) is not None}
    try:
        sampling = checked(Sampling, asked)
    except zoo.SpecError as error:
        raise InputError(f"--{error.path.replace('_', '-')}: {error.reason}") from error
    model = trained_model(store, digest).eval()
    train = TrainSpec.model_validate((store.read_run(digest) or {}).get("train", {}))
    if isinstance(train.objective, FillsHoles):
        with _in_memory():
            fill(digest, options, model, tokenizer, train.objective, train.context, sampling)
        return DONE
    if options.hole is not None:
        raise InputError(f"--hole: a model trained with {train.objective.kind} goes on with a text, and fills no holes")
    if reason := obstacle(model.spec):
        raise InputError(f"{digest}: the model {reason}: a prompt alone cannot be continued")
    requests = [
        Request(i, tokenizer.encode(prompt).ids or [eos], tuple(options.stop), options.tokens or NEW, sampling)
        for i, prompt in enumerate(options.prompt)
    ]
    _check_room(model, requests)
    with torch.inference_mode(), _in_memory():
        texts = decode(model, tokenizer, requests, eos=eos, seed=options.seed)
    _show(digest, options, texts)
    return DONE


@contextmanager
def _in_memory() -> Iterator[None]:
    """Raises InputError where there is no room in memory for so many tokens."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        raise InputError("out of memory: fewer --tokens take less") from error


def _check_room(model: zoo.Decoder, requests: list[Request]) -> None:
    longest = longest_text(model.spec)
    # The last new token is never read back.
    needed = max(len(request.prompt) + request.max_new - 1 for request in requests)
    if longest is not None and needed > longest:
        raise InputError(f"prompt and new tokens are {needed + 1} tokens: the model has positions for {longest}")


def _show(digest: str, options: argparse.Namespace, texts: list[str]) -> None:
    if options.json:
        pairs = [{"prompt": p, "text": t} for p, t in zip(options.prompt, texts, strict=True)]
        print_json({"digest": digest, "continuations": pairs})
        return
    for prompt, text in zip(options.prompt, texts, strict=True):
        print(prompt + text)
