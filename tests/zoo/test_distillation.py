"""Distillation: values and gradients against torch's own KL divergence on whole logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from zoo.loss import BatchShare, SoftTargets


def model(seed: int, **edits: Any) -> zoo.Decoder:
    return zoo.build(zoo.load("small", **{"d_model": 16, "n_layers": 1, "vocab_size": 40} | edits), seed=seed)


def text() -> tuple[Tensor, Tensor]:
    drawn = torch.randint(0, 40, (30, 21), generator=torch.Generator().manual_seed(0))
    targets = drawn[:, 1:].clone()
    targets[3, 5:] = -100
    return drawn[:, :-1], targets


def plain(student: zoo.Decoder, teacher: zoo.Decoder, t: float, w: float, top_k: int | None) -> Tensor:
    """(1 − w) · CE + w · T² · KL, as its formula says."""
    tokens, targets = text()
    ours, goals = student(tokens).flatten(0, 1), targets.flatten()
    p = (teacher(tokens).detach().flatten(0, 1) / t).softmax(-1)
    if top_k is not None:
        kept = p >= p.topk(top_k, dim=-1).values[:, -1:]
        p = (p * kept) / (p * kept).sum(-1, keepdim=True)
    counted = goals != -100
    kl = F.kl_div((ours / t).log_softmax(-1), p, reduction="none").sum(-1)[counted].mean()
    z = student.spec.z_loss * ours.logsumexp(-1)[counted].square().mean()
    return (1 - w) * F.cross_entropy(ours, goals) + w * t**2 * kl + z


@pytest.mark.parametrize(("t", "w", "top_k"), [(1.0, 0.5, None), (3.0, 0.9, None), (2.0, 1.0, 5)])
@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
def test_loss_and_gradients_are_those_of_the_formula(t: float, w: float, top_k: int | None, z_loss: float) -> None:
    """600 targets: several pieces of a head on a CPU."""
    student, teacher = model(0, z_loss=z_loss), model(1, n_layers=2).eval()
    for each in (student, teacher):
        torch.nn.init.normal_(each.embedding.weight, generator=torch.Generator().manual_seed(2 + len(each.blocks)))
    tokens, targets = text()
    soft = SoftTargets(teacher.hidden(tokens).detach(), teacher.read_out, t, w, top_k)
    found, nats = student.loss(tokens, targets, soft=soft)
    found.backward()
    gradients = {name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None}
    student.zero_grad()
    expected = plain(student, teacher, t, w, top_k)
    expected.backward()
    torch.testing.assert_close(found, expected)
    for name, parameter in student.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(nats, F.cross_entropy(student(tokens).flatten(0, 1), targets.flatten()))
    with torch.no_grad():
        torch.testing.assert_close(student.loss(tokens, targets, soft=soft)[0], expected)


def test_parts_of_a_batch_sum_to_the_whole() -> None:
    student, teacher, (tokens, targets) = model(0), model(1).eval(), text()
    count = (targets != -100).sum()

    def loss(rows: slice, part: BatchShare | None) -> Tensor:
        soft = SoftTargets(teacher.hidden(tokens[rows]).detach(), teacher.read_out, 2.0, 0.5)
        return student.loss(tokens[rows], targets[rows], part, soft)[0]

    parts = [loss(slice(0, 12), BatchShare(count, 0.4)), loss(slice(12, 30), BatchShare(count, 0.6))]
    torch.testing.assert_close(sum(parts), loss(slice(None), None))


def test_a_student_that_says_what_its_teacher_does_loses_nothing_to_it() -> None:
    student, (tokens, targets) = model(0), text()
    soft = SoftTargets(student.hidden(tokens).detach(), student.read_out, 2.0, 1.0)
    objective, _ = student.loss(tokens, targets, soft=soft)
    objective.backward()
    assert objective.abs() < 1e-5
    assert all(p.grad.abs().max() < 1e-5 for p in student.parameters() if p.grad is not None)
