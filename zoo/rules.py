"""Parts and settings of a model that a rule is not known to hold for: what does not declare a rule is outside of it.

A part (a variant, a feature) declares in `rules` what holds for models that have it. A setting that is off by default
and is on is a feature of its own: rules about what a model computes (`OF_VALUES`) hold for it where `Keeps` says so at
its field. What a setting changes in a part's modules is seen in these, so that the others hold unless `Keeps` leaves
them out. Sizes, and settings that are never off, belong to the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zoo.axis import Spec, Variant
from zoo.facts import As, Fact, Keeps, facts_of, said_of
from zoo.spec import ModelSpec
from zoo.traits import OF_MODULES, Rule

SIZES = {Fact.SIZE, Fact.WIDTH, Fact.HEAD_WIDTH, Fact.HEADS, Fact.SHARED_HEADS}


class Outside(NamedTuple):
    """A part or a setting, and its kind where it is one choice of an axis."""

    path: str
    kind: str = ""

    @property
    def name(self) -> str:
        """The kind, or the path below the block."""
        return self.kind or self.below_block

    @property
    def below_block(self) -> str:
        first, _, rest = self.path.partition(".")
        return {"block": rest, "blocks": rest.partition(".")[2]}.get(first, self.path)

    def __str__(self) -> str:
        """`the mixer mla`, `sharing.recursion`."""
        field = self.path.rpartition(".")[2].replace("_", " ")
        return f"the {field} {self.kind}" if self.kind else self.below_block


def outside(model: ModelSpec, rule: Rule) -> list[Outside]:
    """What of a model, and of its encoder, does not declare the rule."""
    found = list(_outside(model, rule, ""))
    for path, block in dict(zip(model.layer_paths, model.layers, strict=True)).items():
        found += _outside(block, rule, path)
    if model.encoder_spec is not None and not any(part.path == "encoder" for part in found):
        found += [Outside(f"encoder.{path}", kind) for path, kind in outside(model.encoder_spec, rule)]
    return found


def _outside(part: Spec, rule: Rule, path: str) -> Iterator[Outside]:
    if rule not in part.rules:
        yield Outside(path, part.kind if isinstance(part, Variant) else "")
        return
    for name in type(part).model_fields:
        if Fact.LAYERS in facts_of(type(part), name):
            continue
        value, plain, where = getattr(part, name), said_of(type(part), name, As), f"{path}.{name}".lstrip(".")
        if plain is not None and value:
            value = plain.make(value)
        if isinstance(value, Spec):
            yield from _outside(value, rule, where)
        elif _is_on(type(part), name, value) and not _keeps(type(part), name, rule):
            yield Outside(where)


def _is_on(owner: type[Spec], name: str, value: Any) -> bool:
    """Whether a setting is on that is off by default."""
    field = owner.model_fields[name]
    return bool(value) and not field.is_required() and not field.get_default(call_default_factory=True)


def _keeps(owner: type[Spec], name: str, rule: Rule) -> bool:
    said = said_of(owner, name, Keeps)
    if said is None:
        return rule in OF_MODULES or bool(facts_of(owner, name) & SIZES)
    return rule in said.rules
