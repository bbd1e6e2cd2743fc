"""A training step of a model of every choice, and a token that is drawn."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from zoo.conformance.combinations import given_to, random_tokens
from zoo.decode import Sampling
from zoo.model import Decoder
from zoo.spec import ModelSpec

LENGTH = 19


def step(spec: ModelSpec) -> None:
    """Forward and backward in bfloat16."""
    model = Decoder(spec).train()
    with FakeTensorMode() as mode:

        def moved(value: Tensor) -> Tensor:
            return mode.from_tensor(value).to("cuda")

        for module in model.modules():
            for name, value in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(moved(value)))
            for name, value in list(module.named_buffers(recurse=False)):
                setattr(module, name, moved(value))
        given = {name: moved(value) for name, value in given_to(spec, 2, LENGTH).items()}
        tokens = moved(random_tokens(spec, 2, LENGTH + 1))
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:], **given)
        loss.backward()
    assert loss.device.type == "cuda"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert (parameter.grad.device.type, parameter.grad.dtype) == ("cuda", parameter.dtype), name


def draw_one() -> None:
    """With a generator of the CPU, as whoever wants the same text on every device has."""
    with FakeTensorMode():
        logits, text = torch.zeros(2, 7, device="cuda"), torch.zeros(2, 3, dtype=torch.long, device="cuda")
        chosen = Sampling(temperature=1.0, top_p=0.9).choose(logits, text, generator=torch.Generator())
    assert chosen.device.type == "cuda"
