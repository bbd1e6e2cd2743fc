"""Names of the attention kernels that a run uses."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch

from ablate.machine.numerics import Numerics
from zoo.attending.fused import chosen_kernel
from zoo.spec import ModelSpec


def attention_text(backends: Collection[str], spec: ModelSpec, context: int, numerics: Numerics) -> str | None:
    """`fused`; on a GPU with the kernels that torch chooses, `fused (cudnn)`; None without softmax attention."""
    names = sorted(backends)
    if numerics.device == "cuda" and "fused" in names:
        kernels = ", ".join(sorted(set(_kernels(spec, context, numerics))))
        names[names.index("fused")] = f"fused ({kernels})" if kernels else "fused"
    return ", ".join(names) or None


def _kernels(spec: ModelSpec, context: int, numerics: Numerics) -> Iterator[str]:
    """Kernels that torch chooses for one row of each kind of layer; the number of rows does not matter."""
    for mixer in dict.fromkeys(layer.mixer for layer in spec.layers):
        sizes = [getattr(mixer, name, None) for name in ("heads", "kv_heads", "head_dim", "v_dim")]
        heads, kv_heads, features, v_dim = (size if isinstance(size, int) else None for size in sizes)
        if heads is None or features is None:
            continue
        kv_heads, v_dim = kv_heads or heads, v_dim or features
        q, k, v = (
            torch.empty(
                (1, count, context, width), device=numerics.device, dtype=numerics.torch_dtype, requires_grad=True
            )
            for count, width in ((heads, features), (kv_heads, features), (kv_heads, v_dim))
        )
        yield chosen_kernel(q, k, v)
