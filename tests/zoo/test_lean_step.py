"""A training step beside that of a plain decoder with the same weights."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

import zoo
from evals.costs.memory import keep_freed_memory
from tests.zoo.lean_decoder import LeanDecoder

DEMO = {"d_model": 24, "n_layers": 6, "vocab_size": 1024, "block.mixer.heads": 2}
"""Size of the models of `norm_placement` at scale `cpu`."""


def models() -> tuple[zoo.Decoder, LeanDecoder, Tensor]:
    """The two models, and a batch: (6, 129)."""
    model = zoo.build(zoo.load("small", **DEMO), seed=1).train()
    return model, LeanDecoder.of(model), torch.randint(1024, (6, 129), generator=torch.Generator().manual_seed(0))


def test_it_has_the_logits_loss_and_gradients_of_the_plain_decoder() -> None:
    model, lean, tokens = models()
    read, targets = tokens[:, :-1], tokens[:, 1:]
    torch.testing.assert_close(model(read), lean(read), rtol=1e-5, atol=1e-5)
    loss, expected = model.loss(read, targets)[0], lean.loss(read, targets)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    loss.backward()
    expected.backward()
    mixer = model.blocks[0].mixer
    torch.testing.assert_close(
        torch.cat([layer.weight.grad for layer in (mixer.q, mixer.k, mixer.v)]), lean.qkv[0].grad, rtol=1e-4, atol=1e-7
    )
    torch.testing.assert_close(model.embedding.weight.grad, lean.table.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.slow  # a ratio of times, which other work on the machine disturbs
def test_an_eager_step_takes_at_most_8_percent_more_processor_time() -> None:
    model, lean, tokens = models()
    read, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    keep_freed_memory()
    ours = step_of(model.parameters(), lambda: model.loss(read, targets)[0])
    plain = step_of(lean.parameters(), lambda: lean.loss(read, targets))
    try:
        rounds = [(seconds(ours), seconds(plain)) for _ in range(40)][5:]
    finally:
        torch.set_num_threads(before)
    assert statistics.median(one / other for one, other in rounds) <= 1.08


def step_of(parameters: Iterable[nn.Parameter], loss: Callable[[], Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(parameters, lr=0.0, fused=True)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def seconds(step: Callable[[], None], count: int = 3) -> float:
    start = time.process_time()
    for _ in range(count):
        step()
    return time.process_time() - start
