"""Parts and settings that do not support an operation: it is refused for models that have one of them.

A part (a variant, a feature) declares in `supports` which operations work on models that have it. A setting that is off
by default and switched on counts as a feature of its own: operations that depend on what a model computes (`OF_VALUES`)
work with it only if `Supports` at its field says so. Operations that depend on modules alone work unless `Supports`
leaves them out, because the effect of a setting on modules is visible in these. Sizes, and settings that are never off,
belong to the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zoo.compatibility.traits import OF_MODULES, OF_VALUES, Operation, Operations
from zoo.settings.axis import Spec, Variant
from zoo.settings.field_tags import Fact, Supports, facts_of, said_of, written_out
from zoo.spec import ModelSpec

SIZES = {Fact.SIZE, Fact.WIDTH, Fact.HEAD_WIDTH, Fact.HEADS, Fact.SHARED_HEADS}


class Unsupported(NamedTuple):
    """A part or a setting that does not support an operation. kind: the variant's kind, for a choice on an axis.
    missing: the attribute or annotation that it lacks; empty if it declares its operations without this one."""

    path: str
    kind: str = ""
    missing: str = ""

    @property
    def name(self) -> str:
        """The kind, or the path below the block (`mla`, `sharing.recursion`), and the missing declaration."""
        first, _, rest = self.path.partition(".")
        below = {"block": rest, "blocks": rest.partition(".")[2]}.get(first, self.path)
        return f"{self.kind or below}{self._reason}"

    def __str__(self) -> str:
        """Name for messages: `the mixer mla`, `sharing.recursion`."""
        field = self.path.rpartition(".")[2].replace("_", " ")
        return f"the {field} {self.kind}{self._reason}" if self.kind else self.name

    @property
    def _reason(self) -> str:
        return f", which declares no `{self.missing}`" if self.missing else ""


def unsupported(model: ModelSpec, operation: Operation) -> list[Unsupported]:
    """Parts and settings of a model and of its encoder that do not support the operation."""
    found = list(_unsupported(model, operation, ""))
    for path, block in dict(zip(model.layer_paths, model.layers, strict=True)).items():
        found += _unsupported(block, operation, path)
    if model.encoder_spec is not None and not any(part.path == "encoder" for part in found):
        found += [part._replace(path=f"encoder.{part.path}") for part in unsupported(model.encoder_spec, operation)]
    return found


def declared(part: type[Spec]) -> Operations | None:
    """Operations that a part declares; None without a declaration. Variants do not inherit one: a variant that extends
    another computes something else."""
    classes = [part] if issubclass(part, Variant) else part.__mro__[: part.__mro__.index(Spec)]
    return next((vars(cls)["supports"] for cls in classes if "supports" in vars(cls)), None)


def switches(part: type[Spec]) -> Iterator[str]:
    """Settings that are off by default, except sizes, and the layers' pattern, if they declare no `Supports`."""
    for name, field in part.model_fields.items():
        belongs = bool(facts_of(part, name) & {*SIZES, Fact.LAYERS}) and said_of(part, name, Supports) is None
        if not belongs and not field.is_required() and not field.get_default(call_default_factory=True):
            yield name


def _unsupported(part: Spec, operation: Operation, path: str) -> Iterator[Unsupported]:
    own = declared(type(part))
    if own is None or operation not in own:
        yield Unsupported(path, part.kind if isinstance(part, Variant) else "", "supports" if own is None else "")
        return
    off_by_default = set(switches(type(part)))
    for name in type(part).model_fields:
        if Fact.LAYERS in facts_of(type(part), name):
            continue
        value, where = written_out(part, name), f"{path}.{name}".lstrip(".")
        if isinstance(value, Spec):
            if not (operation in OF_VALUES and part.keeps_width(name)):
                yield from _unsupported(value, operation, where)
        elif value and name in off_by_default:
            said = said_of(type(part), name, Supports)
            if operation not in (OF_MODULES if said is None else said.operations):
                yield Unsupported(where, missing="Supports" if said is None else "")
