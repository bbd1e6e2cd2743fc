"""Next-token loss that never holds all logits in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zoo.kernels.compiling import device_type, is_compiling

# Knowledge distillation: a teacher's distribution over each next token as a target, in addition to the text (Hinton et
# al. 2015, arXiv:1503.02531).
#
#     loss = (1 − w) · CE(text, p_s) + w · T² · KL(p_t^{1/T} ‖ p_s^{1/T})        p^{1/T} = softmax(logits / T)
#
# T² keeps the scale of gradients independent of the temperature: the second term's gradient with respect to the
# student's logits is w · T · (p_s^{1/T} − p_t^{1/T}).


@dataclass(frozen=True)
class SoftTargets:
    """A teacher's hidden states and its head, which is applied to a few rows at a time, so that the logits of all rows
    are never in memory."""

    rows: Tensor
    """Hidden states, (N, D) or (B, T, D), D being the teacher's width."""
    read_out: Callable[[Tensor], Tensor]
    temperature: float = 1.0
    weight: float = 0.5
    """w, the weight of the teacher's term."""
    top_k: int | None = None
    """Number of the teacher's likeliest tokens to keep, renormalised to sum to one; null for all."""

    def at(self, piece: slice) -> SoftTargets:
        """The same for some of its rows."""
        return replace(self, rows=self.rows[piece])

    def log_p(self) -> Tensor:
        """(n, V), float32: log p_t^{1/T}."""
        with torch.no_grad():  # as a decorator it would break the graph of torch.compile
            logits = self.read_out(self.rows).float() / self.temperature
            if self.top_k is not None and self.top_k < logits.shape[-1]:
                kept = logits.topk(self.top_k, dim=-1)
                logits = torch.full_like(logits, -torch.inf).scatter(-1, kept.indices, kept.values)
            return logits.log_softmax(dim=-1)

    def divergence(self, logits: Tensor, counts: Tensor, theirs: Tensor) -> Tensor:
        """(): Σ w · T² · KL over the rows where counts is true. logits: (n, V), the student's, float32; counts: (n,);
        theirs: the teacher's `log_p`."""
        ours, p = (logits / self.temperature).log_softmax(dim=-1), theirs.exp()
        # Clamped, because 0 · −∞ is NaN: tokens outside the top k add 0.
        each = (p * (theirs.clamp(min=torch.finfo(p.dtype).min) - ours)).sum(dim=-1)
        return self.weight * self.temperature**2 * each.where(counts, 0.0).sum()

    def gradient(self, logits: Tensor, counts: Tensor, theirs: Tensor) -> Tensor:
        """(n, V): gradient of `divergence` with respect to the student's logits."""
        unlike = (logits / self.temperature).softmax(dim=-1) - theirs.exp()
        return self.weight * self.temperature * unlike * counts.to(logits.dtype)[:, None]


IGNORED = -100
LOGITS_AT_ONCE = 2**28 + 2**24
"""Most logits held at a time: 1 GiB in float32, with room for the few tokens that an objective adds to a power-of-two
vocabulary."""
LOGITS_ON_CPU = 2**20
"""Logits read out at a time on a CPU, few enough that they stay in the processor's cache."""
LEAST_ROWS_ON_CPU = 256
"""Rows read out at a time on a CPU whatever the vocabulary: the products of fewer rows are slow."""


@dataclass(frozen=True)
class Head:
    """read_out: (N, D) → logits (N, V). parameters: those of read_out that are trained."""

    read_out: Callable[[Tensor], Tensor]
    vocabulary: int
    parameters: Sequence[nn.Parameter] = ()

    def rows_at_once(self, rows: Tensor) -> int:
        if device_type(rows) == "cpu":
            return max(LEAST_ROWS_ON_CPU, LOGITS_ON_CPU // self.vocabulary)
        return max(1, LOGITS_AT_ONCE // self.vocabulary)


@dataclass(frozen=True)
class BatchShare:
    """Share of a batch that some of its rows are: the losses of such parts sum to the batch's loss.

    scored: (), number of targets in the whole batch that are not −100. rows: share of the batch's rows.
    """

    scored: Tensor
    rows: float


class Sums(NamedTuple):
    """Sums over the targets that are not −100: of the training objective, and of negative log-likelihoods."""

    objective: Tensor
    nats: Tensor


def next_token_loss(
    head: Head,
    hidden: Tensor,
    targets: Tensor,
    z_loss: float = 0.0,
    count: Tensor | None = None,
    soft: SoftTargets | None = None,
) -> tuple[Tensor, Tensor]:
    """(objective, nats per token), means over the targets that are not −100, in float32.

    hidden: (B, T, D), targets: (B, T). objective = nats + z_loss · mean(logsumexp(logits)²); the z-loss is PaLM's,
    arXiv:2204.02311 §5. count: divisor of the sums, by default the number of these targets. soft: a teacher's
    distribution over the same tokens, whose term is weighted into the objective.
    """
    flat = None if soft is None else replace(soft, rows=soft.rows.flatten(0, -2))
    sums = summed_loss(head, hidden, targets, z_loss, flat)
    count = scored(targets) if count is None else count
    return sums.objective / count, sums.nats / count


def target_nats(head: Head, hidden: Tensor, targets: Tensor) -> Tensor:
    """(B, T): −ln p of each target in float32, 0 for targets of −100; without gradients. hidden: (B, T, D)."""
    rows, goals = hidden.flatten(0, -2), targets.flatten()
    with torch.no_grad():
        found = [
            F.cross_entropy(head.read_out(rows[piece]).float(), goals[piece], ignore_index=IGNORED, reduction="none")
            for piece in _pieces(head, rows)
        ]
    return torch.cat(found).view(targets.shape)


def log_z(head: Head, hidden: Tensor) -> Tensor:
    """(B, T, D) → (B, T): logsumexp of each token's logits, in float32."""
    rows = hidden.flatten(0, -2)
    chunks = rows.chunk(chunks_for(len(rows), head.vocabulary))
    return torch.cat([head.read_out(chunk).float().logsumexp(dim=-1) for chunk in chunks]).view(hidden.shape[:-1])


def scored(targets: Tensor) -> Tensor:
    """(): number of targets that are not −100."""
    return (targets != IGNORED).sum()


def summed_loss(
    head: Head, hidden: Tensor, targets: Tensor, z_loss: float = 0.0, soft: SoftTargets | None = None
) -> Sums:
    """Sums of `next_token_loss` before the division. soft: with rows flattened to (N, D)."""
    rows, goals = hidden.flatten(0, -2), targets.flatten()
    if is_compiling():
        return _traced(head, rows, goals, z_loss, soft)
    if torch.is_grad_enabled():
        return Sums(*cast(Any, _FusedHeadLoss.apply)(head, goals, z_loss, soft, rows, *head.parameters))
    return _total(
        _sums(head.read_out(rows[piece]), goals[piece], z_loss, _at(soft, piece)) for piece in _pieces(head, rows)
    )


def chunks_for(rows: int, vocabulary: int) -> int:
    """Number of chunks of rows in which the head holds at most LOGITS_AT_ONCE logits at a time."""
    return max(1, math.ceil(rows * vocabulary / LOGITS_AT_ONCE))


class _FusedHeadLoss(torch.autograd.Function):
    """Sums over all rows. The forward pass computes their gradients, too, piece by piece while a piece's logits exist.

    The loss is the end of the graph, so the forward pass knows its gradient up to the factor that the backward pass
    supplies. Each piece is read out once; checkpointing would read it out twice. As in Liger Kernel, arXiv:2410.10989
    §3.2.
    """

    @staticmethod
    def forward(
        ctx: Any,
        head: Head,
        goals: Tensor,
        z_loss: float,
        soft: SoftTargets | None,
        rows: Tensor,
        *parameters: Tensor,
    ) -> Sums:
        found: list[Sums] = []
        of_rows = torch.empty_like(rows)
        of_parameters: list[Tensor] = []
        for piece in _pieces(head, rows):
            with torch.enable_grad():
                # view_as gives a non-leaf: hooks of torch's FLOP counter reject leaves that require a gradient.
                given = rows[piece].detach().requires_grad_().view_as(rows[piece])
                logits = head.read_out(given).float()
            sums, gradient = _with_gradient(logits.detach(), goals[piece], z_loss, _at(soft, piece))
            of_rows[piece], *of_piece = torch.autograd.grad(logits, (given, *parameters), gradient)
            sums_so_far = zip(of_parameters, of_piece, strict=True)
            of_parameters = [whole.add_(part) for whole, part in sums_so_far] if found else of_piece
            found.append(sums)
        ctx.save_for_backward(of_rows, *of_parameters)
        whole = _total(iter(found))
        ctx.mark_non_differentiable(whole.nats)
        return whole

    @staticmethod
    def backward(ctx: Any, factor: Tensor, _nats: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, None, None, *(gradient * factor for gradient in ctx.saved_tensors))


def _at(soft: SoftTargets | None, piece: slice) -> SoftTargets | None:
    return None if soft is None else soft.at(piece)


def _with_gradient(
    logits: Tensor, goals: Tensor, z_loss: float, soft: SoftTargets | None = None
) -> tuple[Sums, Tensor]:
    """Sums of a piece of logits, (N, V) float32, and the gradient of its objective with respect to the logits.

    With p = softmax(logits), Z = Σ exp(logits) and y the target: ∂/∂logits = p · (1 + 2 · z_loss · log Z) − onehot(y).
    A teacher of weight w multiplies p − onehot(y) by 1 − w and adds its own gradient.
    """
    counts = goals != IGNORED
    goal, weight = goals.where(counts, 0)[:, None], counts.to(logits.dtype)
    # The largest p is 1 / Σ exp(logits − largest logit), which gives log Z without a second pass of exponentials.
    p, largest = logits.softmax(dim=-1), logits.amax(dim=-1)
    log_sum = -p.amax(dim=-1).log()
    nats = (largest - logits.gather(1, goal).squeeze(1) + log_sum).where(counts, 0.0).sum()
    share = 1.0 if soft is None else 1.0 - soft.weight
    objective, of_p = nats if soft is None else share * nats, share * weight
    if z_loss:
        log_z = largest + log_sum
        objective = objective + z_loss * (weight * log_z.square()).sum()
        of_p = of_p + 2 * z_loss * weight * log_z
    gradient = p.mul_(of_p[:, None]).scatter_add_(1, goal, -share * weight[:, None])
    if soft is not None:
        theirs = soft.log_p()
        objective = objective + soft.divergence(logits, counts, theirs)
        gradient += soft.gradient(logits, counts, theirs)
    return Sums(objective, nats), gradient


def _traced(head: Head, rows: Tensor, goals: Tensor, z_loss: float, soft: SoftTargets | None) -> Sums:
    """`summed_loss` for torch.compile, which cannot trace `_FusedHeadLoss`. The compiler fuses the work on logits;
    if there are more than LOGITS_AT_ONCE, chunks are checkpointed, so the backward pass computes logits again."""
    chunks = chunks_for(rows.shape[0], head.vocabulary)
    if chunks == 1:
        return _sums(head.read_out(rows), goals, z_loss, soft)

    def sums(rows: Tensor, goals: Tensor, soft: SoftTargets | None) -> Sums:
        return _sums(head.read_out(rows), goals, z_loss, soft)

    size = math.ceil(rows.shape[0] / chunks)
    pieces = [slice(start, start + size) for start in range(0, rows.shape[0], size)]
    parts = ((rows[piece], goals[piece], _at(soft, piece)) for piece in pieces)
    return _total(Sums(*checkpoint(sums, *part, use_reentrant=False)) for part in parts)


def _sums(logits: Tensor, goals: Tensor, z_loss: float, soft: SoftTargets | None = None) -> Sums:
    """`summed_loss` of one piece."""
    logits = logits.float()
    nats = F.cross_entropy(logits, goals, ignore_index=IGNORED, reduction="sum")
    objective = nats
    if soft is not None:
        objective = (1 - soft.weight) * nats + soft.divergence(logits, goals != IGNORED, soft.log_p())
    if z_loss:
        objective = objective + z_loss * logits.logsumexp(dim=-1).square().masked_fill(goals == IGNORED, 0.0).sum()
    return Sums(objective, nats.detach())


def _pieces(head: Head, rows: Tensor) -> Iterator[slice]:
    at_once = head.rows_at_once(rows)
    return (slice(start, start + at_once) for start in range(0, rows.shape[0], at_once))


def _total(parts: Iterator[Sums]) -> Sums:
    objectives, nats = zip(*parts, strict=True)
    return Sums(torch.stack(objectives).sum(), torch.stack(nats).sum())
