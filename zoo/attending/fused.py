"""torch's scaled_dot_product_attention, with an explicit mask where its causal option is not enough."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import attention
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from zoo.attending.blocks import by_group, by_head
from zoo.attending.visible import Needs, Scoring, Visible

RANK, KERNEL, HOOKED = 4, True, True
WITHOUT_PLANS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""All kernels but cuDNN's, which takes 40 to 400 ms to plan each new shape: training has one shape, evaluation and
decoding have many."""


def obstacle(needs: Needs) -> str | None:
    """Reason why the kernels cannot serve `needs`; None if they can. They take constant biases only."""
    if needs.softcap or needs.sinks or needs.bias == "learned":
        return "does not support softcap, sinks or a learned bias"
    return "does not support dropout with FlashAttention-3" if needs.dropout and is_flash_3() else None


def pays(_device: str, _dtype: torch.dtype, _needs: Needs) -> bool:
    return True


def use_flash_3() -> bool:
    """Use FlashAttention-3 (Shah et al. 2024, arXiv:2407.08608) in place of torch's own kernel in this process, if its
    package is installed and the GPU has compute capability 9.0. Returns whether it is in use."""
    if find_spec("flash_attn_interface") is None or not hasattr(attention, "activate_flash_attention_impl"):
        return False
    if torch.cuda.get_device_capability() == (9, 0) and not is_flash_3():
        attention.activate_flash_attention_impl("FA3")
    return is_flash_3()


def is_flash_3() -> bool:
    """Whether FlashAttention-3 is in use. Torch before 2.11 has no hook for it."""
    return hasattr(attention, "current_flash_attention_impl") and attention.current_flash_attention_impl() == "FA3"


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    whole = visible.pattern is None and (visible.window is None or visible.window >= q.shape[2])
    triangle = visible.aligned and whole and scoring.bias is None
    mask = None if triangle or (visible.everything and scoring.bias is None) else visible.mask()
    if mask is not None and scoring.bias is not None:
        mask = torch.where(mask, scoring.bias, float("-inf")).to(q.dtype)
        # Four dimensions, or the kernels fall back to their slow path.
        mask = mask if mask.dim() == 4 else mask[None]
    return sdpa(q, k, v, mask, triangle, scoring)


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, triangle: bool, scoring: Scoring) -> Tensor:
    grouped = k.shape[1] != q.shape[1]
    if grouped and mask is not None and q.is_cuda:
        return in_groups(q, k, v, mask, scoring)
    causal = triangle and q.shape[2] > 1
    return _mixed(
        q, k, v, attn_mask=mask, dropout_p=scoring.dropout, is_causal=causal, scale=scoring.scale, enable_gqa=grouped
    )


def in_groups(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scoring: Scoring) -> Tensor:
    """Masked attention with grouped heads, which CUDA's fused kernels do not support together. The queries of a group
    are stacked as one head's, and the mask is repeated, which is smaller than keys and values."""
    groups, heads = k.shape[1], q.shape[1]
    mask = mask if mask.dim() == 4 else mask[(None,) * (4 - mask.dim())]
    mask = mask.expand(-1, heads if mask.shape[1] > 1 else heads // groups, q.shape[2], -1)
    mask = by_group(mask, groups if mask.shape[1] == heads else 1)
    mixed = _mixed(by_group(q, groups), k, v, attn_mask=mask, dropout_p=scoring.dropout, scale=scoring.scale)
    return by_head(mixed, heads)


def chosen_kernel(q: Tensor, k: Tensor, v: Tensor) -> str:
    """The kernel that torch selects for causal attention of these: `cudnn`, `flash`, `efficient` or `math`. The choice
    depends on torch, cuDNN, the GPU and the shapes; speeds differ by up to a factor of 2."""
    grouped = k.shape[1] != q.shape[1]
    choice = torch._fused_sdp_choice(q, k, v, None, 0.0, True, enable_gqa=grouped)
    return SDPBackend(choice).name.lower().removesuffix("_attention")


def _mixed(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
    if not q.is_cuda or torch.is_grad_enabled():
        return F.scaled_dot_product_attention(q, k, v, **how)
    with sdpa_kernel(WITHOUT_PLANS):
        return F.scaled_dot_product_attention(q, k, v, **how)
