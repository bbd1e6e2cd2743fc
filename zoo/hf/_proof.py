"""Proof of a conversion, in two parts. A config key that the family does not understand is looked up in transformers'
code of the model: a key never read cannot matter, at any size or length. Then logits of random tokens are compared."""

from __future__ import annotations

import ast
import inspect
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from zoo.errors import ConversionWarning, UnsupportedError
from zoo.hf._family import Task
from zoo.model import Decoder

LENGTH = 16
MOST_PARAMETERS = 10**10
"""Largest model whose logits are compared: with more parameters, this takes longer than seconds."""
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
"""Maximum difference of logits relative to the largest; 0.3 in half precision, where rounding alone gives 0.13."""
UNABLE = (RuntimeError, NotImplementedError, ImportError, TypeError, ValueError)
"""Exceptions of a model that transformers cannot run on this machine."""
SAID: set[str] = set()
"""Warnings already given in this process."""
ELSEWHERE = ("transformers.generation", "transformers.utils", "transformers.configuration_utils")
"""Prefixes of modules that a model's module imports but that do not compute logits."""


def read_by(model_class: type, config_class: type) -> frozenset[str]:
    """Names that the model's code reads, or may read, from a config.

    Names that only the config's constructor reads are not included: they act through other keys, which hold the result.
    """
    own = {sys.modules[base.__module__] for base in model_class.__mro__ if ".models." in base.__module__}
    origins = {getattr(value, "__module__", None) or "" for module in own for value in vars(module).values()}
    shared = {name for name in origins if name.startswith("transformers.") and not name.startswith(ELSEWHERE)}
    names = {module.__name__ for module in own} | {name for name in shared if ".models." not in name}
    return frozenset(chain(*map(_config_reads, sorted(names)), _methods_read(config_class)))


@cache
def _config_reads(module: str) -> frozenset[str]:
    """Every `x` in `config.x`, and every string, as it may be the key of a lookup."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    firsts = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    docs = {id(first.value) for first in firsts if isinstance(first, ast.Expr)}
    return frozenset(name for node in ast.walk(tree) if id(node) not in docs and (name := _name_read(node)))


def _name_read(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.Attribute):
        return None
    owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    return node.attr if "config" in owner or "cfg" in owner else None


@cache
def _methods_read(config_class: type) -> frozenset[str]:
    """Every `x` in `self.x` in a config's properties and methods, except those that construct or validate it."""
    classes = [base for base in config_class.__mro__ if ".models." in base.__module__]
    nodes = chain(*(ast.walk(ast.parse(inspect.getsource(sys.modules[each.__module__]))) for each in classes))
    names = {each.__name__ for each in classes}
    methods = chain(*(node.body for node in nodes if isinstance(node, ast.ClassDef) and node.name in names))
    own = (each for each in methods if isinstance(each, ast.FunctionDef) and not each.name.startswith(("__", "valid")))
    found = (node for each in own for node in ast.walk(each) if isinstance(node, ast.Attribute))
    return frozenset(node.attr for node in found if getattr(node.value, "id", "") == "self")


def warn_of(keys: list[str], model_type: str) -> None:
    """Warn about the keys that are left out."""
    if keys:
        _warn_once(f"{model_type}: ignored keys that transformers does not read: {', '.join(keys)}")


def _warn_once(message: str) -> None:
    """Warn once per process, as a study reads a config many times."""
    if message not in SAID:
        SAID.add(message)
        warnings.warn(message, ConversionWarning, stacklevel=3)


def is_here(hf_model: nn.Module) -> bool:
    """Whether the model can be run: all weights on one device, which is not meta, at most `MOST_PARAMETERS` of them."""
    parameters = list(hf_model.parameters())
    devices = {parameter.device for parameter in parameters}
    return len(devices) == 1 and "meta" not in str(devices) and sum(p.numel() for p in parameters) <= MOST_PARAMETERS


@torch.no_grad()
def compare(hf_model: Any, ours: Decoder, task: Task) -> None:
    """Raise UnsupportedError if the logits of random tokens differ; only warn if transformers cannot run the model."""
    tokens = some_tokens(ours.embedding.weight)
    try:
        with _evaluating(hf_model):
            expected = logits(hf_model, tokens, task)
    except UNABLE as error:
        reason = " ".join(str(error).split())[:200]
        _warn_once(f"logits not compared, since transformers cannot run this model here: {reason}")
        return
    actual = ours(tokens, encoder_tokens=tokens.flip(1)) if task == "sequence to sequence" else ours(tokens)
    if not near(actual, expected):
        reason = f"its logits differ from those of transformers by {_typical(actual, expected):.2g} of the largest"
        raise UnsupportedError("", f"{reason}: please report this config")


@torch.no_grad()
def difference_between(whole: Any, inner: Any, tokens: Tensor) -> float | None:
    """Relative difference between the logits of a whole model and of the language model inside: 0 up to rounding, None
    if transformers cannot run the language model. Raises UnsupportedError if it cannot run the whole on text alone."""
    try:
        with _evaluating(inner):
            expected = logits(inner, tokens, "causal")
    except UNABLE:
        return None
    try:
        with _evaluating(whole):
            actual = whole(input_ids=tokens, use_cache=False).logits
    except UNABLE as error:
        reason = " ".join(str(error).split())[:200]
        raise UnsupportedError("", f"{type(whole).__name__} cannot be run on text alone: {reason}") from error
    return 0.0 if near(actual, expected) else _typical(actual, expected)


def some_tokens(table: Tensor) -> Tensor:
    """Random tokens (2, LENGTH) of a token table, on its device."""
    tokens = torch.randint(len(table), (2, LENGTH), generator=torch.Generator().manual_seed(0))
    return tokens.to(table.device)


def logits(hf_model: Any, tokens: Tensor, task: Task) -> Tensor:
    if task == "sequence to sequence":
        return hf_model(input_ids=tokens.flip(1), decoder_input_ids=tokens, use_cache=False).logits  # type: ignore[no-any-return]
    return hf_model(tokens, **({"use_cache": False} if task == "causal" else {})).logits  # type: ignore[no-any-return]


def near(actual: Tensor, expected: Tensor) -> bool:
    """Whether logits are equal up to rounding."""
    return _typical(actual, expected) <= TOLERANCE.get(actual.dtype, 0.3)


def _typical(actual: Tensor, expected: Tensor) -> float:
    """Upper quartile over tokens of the relative difference: for a few, routers may break a tie in another way."""
    difference = (actual - expected).abs().amax(-1) / expected.abs().amax().clamp(min=1e-30)
    return difference.float().flatten().quantile(0.75).item()


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; each module's own mode is restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
