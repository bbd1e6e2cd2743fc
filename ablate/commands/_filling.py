"""`ablate generate` for models that fill in what is left out of a text."""

from __future__ import annotations

import argparse

import torch
from tokenizers import Tokenizer

from ablate.cli import InputError
from ablate.commands import print_json
from ablate.training.objectives._filling import Filling, FillsHoles, HolesError
from zoo.decode import Sampling
from zoo.model import Decoder

HOLE = "___"
"""What stands for what is left out, unless told."""


def fill(
    digest: str,
    options: argparse.Namespace,
    model: Decoder,
    tokenizer: Tokenizer,
    objective: FillsHoles,
    context: int,
    sampling: Sampling,
) -> None:
    """Print the prompts with their holes filled. context: of training. Raises InputError."""
    if options.stop:
        raise InputError("--stop ends a text that goes on, and this model fills in holes: --tokens limits them")
    prompts = [_pieces(prompt, HOLE if options.hole is None else options.hole) for prompt in options.prompt]
    documents = []
    for number, (prompt, pieces) in enumerate(zip(options.prompt, prompts, strict=True)):
        draw = torch.Generator().manual_seed(options.seed * 1_000_003 + number)  # a prompt's own, whatever the others
        how = Filling(options.tokens or objective.new, context, tokenizer.get_vocab_size(), sampling, draw)
        try:
            with torch.inference_mode():
                found = objective.fill(model, [tokenizer.encode(piece).ids for piece in pieces], how)
        except HolesError as error:
            raise InputError(f"--prompt {prompt!r}: {error}") from error
        fills = [tokenizer.decode(tokens, skip_special_tokens=False) for tokens in found]
        text = pieces[0] + "".join(hole + piece for hole, piece in zip(fills, pieces[1:], strict=True))
        documents.append({"prompt": prompt, "text": text, "fills": fills})
    if options.json:
        print_json({"digest": digest, "filled": documents})
        return
    for document in documents:
        print(document["text"])


def _pieces(prompt: str, mark: str) -> list[str]:
    """What is before, between and after the holes."""
    if not mark:
        raise InputError("--hole: a mark has at least one character")
    if mark not in prompt:
        raise InputError(f"--prompt {prompt!r}: has no {mark} for what is left out, which this model fills in (--hole)")
    return prompt.split(mark)
