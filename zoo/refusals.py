"""Checks of a forward pass's inputs: one clear error for each, before torch raises a less clear one.

Shapes and types are always checked. Values, such as those of `left_pad`, are checked only on the CPU and outside
compiled passes: elsewhere reading them would synchronise the device or break the graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.kernels.compiling import is_fake
from zoo.loss import IGNORED
from zoo.site import Given

INDICES = (torch.int64, torch.int32)


def check_tokens(tokens: Tensor, what: str = "tokens") -> None:
    """Raise ValueError unless tokens are an int64 or int32 tensor (B, T) with at least one row and one token."""
    if not isinstance(tokens, Tensor):
        raise ValueError(f"{what} must be an int64 tensor (batch, length), not a {type(tokens).__name__}")
    if tokens.dim() != 2 or tokens.dtype not in INDICES:
        found = f"{tuple(tokens.shape)} {str(tokens.dtype).removeprefix('torch.')}"
        raise ValueError(f"{what} must be an int64 tensor (batch, length), not {found}")
    if not tokens.numel():
        raise ValueError(f"{what} of shape {tuple(tokens.shape)}: a pass needs at least one row and one token")


def check_targets(targets: Tensor, tokens: Tensor, vocabulary: int) -> None:
    """Raise ValueError for targets of another shape than `tokens`, or that are neither in the vocabulary nor −100."""
    if targets.shape != tokens.shape:
        raise ValueError(f"targets must have the shape of tokens, {tuple(tokens.shape)}, not {tuple(targets.shape)}")
    if not _is_seen(targets):
        return
    wrong = targets[((targets < 0) & (targets != IGNORED)) | (targets >= vocabulary)]
    if wrong.numel():
        legal = f"0 to {vocabulary - 1}, or {IGNORED} where nothing is scored"
        raise ValueError(f"targets must be {legal}, not {int(wrong[0])}")


def check_size(name: str, count: int) -> None:
    """Raise ValueError for a size below one."""
    if count < 1:
        raise ValueError(f"{name} must be at least 1, not {count}")


def check_given(tokens: Tensor, left_pad: Tensor | None, given: Given, room: int | None, cached: bool = False) -> None:
    """Raise ValueError if padding or prefix is not one count per row or is longer than a row, if the encoder's tokens
    have another number of rows, or for documents of another shape, or beside padding, a prefix or a cache.

    room: most tokens of a row; None for any number.
    """
    counts = {"left_pad": left_pad, "right_pad": given.get("right_pad"), "prefix": given.get("prefix")}
    for name, count in counts.items():
        if count is not None:
            _check_count(name, count, tokens.shape[0], room)
    texts = len(given["encoder_tokens"]) if "encoder_tokens" in given else tokens.shape[0]
    if texts != tokens.shape[0]:
        raise ValueError(f"encoder_tokens must have as many rows as tokens, {tokens.shape[0]}, not {texts}")
    if "documents" in given:
        beside = [name for name, count in counts.items() if count is not None] + ["a cache"] * cached
        if beside:
            raise ValueError(f"documents cannot be passed with {beside[0]}")
        if given["documents"].shape != tokens.shape:
            found = tuple(given["documents"].shape)
            raise ValueError(f"documents must have the shape of tokens, {tuple(tokens.shape)}, not {found}")


def most(counts: Tensor) -> int | None:
    """The largest count; None if values may not be read (see `_is_seen`)."""
    return int(counts.max()) if _is_seen(counts) else None


def _is_seen(counts: Tensor) -> bool:
    """Whether values may be read: they are on the CPU, outside a compiled graph, and not those of a fake tensor, as in
    memory estimates."""
    return counts.is_cpu and not torch.compiler.is_compiling() and not is_fake(counts)


def _check_count(name: str, count: Tensor, batch: int, room: int | None) -> None:
    if not isinstance(count, Tensor):
        raise ValueError(f"{name} must be an int64 tensor ({batch},), one number per row, not {count!r}")
    if count.shape != (batch,) or count.dtype not in INDICES:
        found = f"{tuple(count.shape)} {str(count.dtype).removeprefix('torch.')}"
        raise ValueError(f"{name} must be an int64 tensor ({batch},), one number per row, not {found}")
    if _is_seen(count):
        least, most = (int(end) for end in count.aminmax())
        if least < 0:
            raise ValueError(f"{name} must be at least 0, not {least}")
        if room is not None and most > room:
            raise ValueError(f"{name} must be at most {room}, the length of a row, not {most}")
