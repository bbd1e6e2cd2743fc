"""Errors and warnings of model specs, conversions and plug-ins."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

Kind = Literal["unknown_key", "unknown_choice", "illegal"]
"""Machine-readable type of an error: no such setting, no such variant, or anything else."""


class SpecError(ValueError):
    """Invalid spec: `path` is the setting (dotted), `reason` says why in words, and `kind` is for programs."""

    def __init__(self, path: str, reason: str, kind: Kind = "illegal") -> None:
        self.path = path
        self.reason = reason
        self.kind = kind
        super().__init__(f"{path}: {reason}" if path else reason)

    def under(self, prefix: str) -> SpecError:
        """The same error with `prefix` in front of its path."""
        return SpecError(".".join(filter(None, (prefix, self.path))), self.reason, self.kind)


@contextmanager
def under(prefix: str) -> Iterator[None]:
    """Put `prefix` in front of the path of SpecErrors raised inside the block."""
    try:
        yield
    except SpecError as error:
        raise error.under(prefix) from None


class SpecWarning(UserWarning):
    """A model's spec is valid but probably unintended."""


class UnsupportedError(SpecError):
    """A model, or an option of one, that conversion, a cache or a decoding method cannot handle; `path` names it."""


class ConversionWarning(UserWarning):
    """A model was converted, but something was left out or could not be checked."""


class PluginError(ImportError):
    """A plug-in cannot be used; the message is one line that names it and the reason."""


OTHER_NAMES = {
    "lr": ("learning_rate",),
    "batch": ("batch_size", "micro_batch_size", "per_device_train_batch_size"),
    "context": ("seq_len", "seq_length", "sequence_length", "block_size", "max_seq_len", "max_position_embeddings"),
    "warmup": ("warmup_steps", "warmup_ratio", "warmup_iters"),
    "d_model": ("hidden_size", "n_embd", "dim", "embed_dim"),
    "n_layers": ("num_layers", "num_hidden_layers", "n_layer", "depth"),
    "heads": ("n_heads", "num_heads", "n_head", "num_attention_heads"),
    "kv_heads": ("n_kv_heads", "num_kv_heads", "num_key_value_heads"),
    "d_ff": ("intermediate_size", "ffn_dim", "n_inner"),
    "base": ("theta", "rope_theta"),
    "window": ("sliding_window",),
    "flops": ("compute",),
    "limit": ("num_samples", "max_samples"),
    "weight_decay": ("wd",),
}
"""Names that other libraries give to settings, keyed by ours."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`" (did you mean 'x'?)"`, x being the candidate that other libraries call `word`, or else the nearest in
    spelling; empty if none is near."""
    known = list(candidates)
    same = [path for path in known if str(word) in OTHER_NAMES.get(path.rpartition(".")[2], ())]
    near = same or difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""
