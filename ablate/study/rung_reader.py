"""Reading one rung of a study from its merged layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ablate.data.sources import DataSource
from ablate.data.sources.stdlib import StdlibSource
from ablate.study.arms import TRAIN, Arm, ArmBuilder, Edit, edits_in
from ablate.study.complaints import Problem, StudyError, complaints
from ablate.study.layers import Layer, Origins, Target, together
from ablate.study.scales import NAMING, Layers
from ablate.study.sections import DEFAULT_TRAIN, StudySections
from ablate.study.sources import base_kinds
from ablate.study.study import Study, caveat_problems, optimizer_problems, seed_problems, tuning_problems
from ablate.study.tune_spec import TuneSpec
from ablate.study.yamlfile import StudyMap
from ablate.training.spec import TrainSpec
from store.errors import AblateError
from store.extensions import modules_of
from store.paths import NAME
from zoo.errors import SpecError, did_you_mean
from zoo.settings.edits import Edits, flatten

ARMS = "ablate.study.arms"
"""Place of wings that make arms from other keys than `arms`: `arms(reader, tree, sections, builder, base)` returns
them, with the names by which they are judged, or None."""
COMPLETE = (
    "with a top-level budget in flops, tokens or seconds, no scale supplies it: "
    "write `scales: {cpu: {budget: …}}` instead"
)


class RungReader:
    """One pass over the layers of a study, which collects problems until nothing more can be checked."""

    def __init__(self, read: Layers) -> None:
        self.written, self.document = read.written, read.written.document
        self.scale, self.rung, self.layers, self.share = read.scale, read.rung, read.layers, read.share
        self.own, self.shipped = read.own, read.shipped
        self.origins = Origins(self.document.values[()])
        self.problems: list[Problem] = []
        for layer in self.layers:
            self.problems += self.origins.add(layer)

    def study(self) -> Study:
        """The study at this rung. Raises StudyError."""
        tree = self._with_tokenizer(together(self.layers, StudySections.model_fields))
        self.problems += self.name_problems(tree, "arms", "arm")
        ladder = tree.get("ladder")
        has_ladder = isinstance(ladder, Mapping) and ladder and "ladder" in StudySections.model_fields
        if has_ladder and (self.rung is None or any("ladder" in layer.nested for layer in self.own[2:])):
            reason = "must be a map of rungs in the file or in a scale; --set can only remove it (ladder=null)"
            self.problems.append(self.origins.problem(("ladder",), reason, at_key=True))
        sections = self._sections(tree)
        builder = self._builder(tree, sections.data if sections else StdlibSource())
        base = self._base(tree, builder)
        makers = (wing.arms for wing in modules_of(ARMS))
        made = next(filter(None, (arms(self, tree, sections, builder, base) for arms in makers)), None)
        arms, factors = made or (self.plain_arms(tree, builder, base), ())
        if builder is not None and sections is not None and not self.problems:
            is_compared = len(arms) > 1 or not tree.get("search")
            tune = sections.tune if isinstance(sections.tune, TuneSpec) and is_compared else None
            if tune:
                self.problems += tuning_problems(builder, tune, arms)
                given = sections.seeds if isinstance(sections.seeds, tuple) else ()
                self.problems += seed_problems(self.origins, tune, given)
            names = [arm.name for arm in arms]
            for wing in modules_of(__name__):
                self.problems += wing.problems(self, builder, sections, arms, factors)
            self.problems += self._contrast_problems(sections, names)
            known = (factors, "factor") if factors else (names, "arm")
            self.problems += caveat_problems(self.origins, sections, *known)
            self.problems += optimizer_problems(builder, arms)
        if self.problems or sections is None or builder is None:
            raise StudyError(self.problems)
        if self.share is not None:
            sections = sections.model_copy(update={"budget": sections.budget.scaled(self.share)})
        return Study(
            written=self.written,
            scale=self.scale,
            sections=sections,
            arms=tuple(arms),
            vocabulary_given="vocab_size" in tree["base"] or tree["base"].get("preset") is None,
            origins=self.origins,
            builder=builder,
            budget_share=None if self.share is None else f"ladder.{self.rung}",
            factors=factors,
            rung=self.rung,
            shipped=self.shipped,
            brought=self._brought(tree),
        )

    def _sections(self, tree: StudyMap) -> StudySections | None:
        try:
            return StudySections.model_validate(tree)
        except ValidationError as error:
            for path, reason, kind in complaints(error, tree, StudySections):
                target = tuple(key for part in path for key in part.split("."))
                why = f" ({COMPLETE})" if target == ("base",) and "base" not in tree and tree.get("budget") else ""
                self.problems.append(self.origins.problem(target, f"{reason}{why}", kind=kind))
        return None

    def name_problems(self, tree: StudyMap, section: str, noun: str) -> Iterator[Problem]:
        """Problems of the names in a section: how they are spelled, and those that only scales or edits have."""
        written = self.document.data.get(section)
        names = list(written) if isinstance(written, Mapping) else []
        first = self.own[0].nested.get(section)
        known = first if isinstance(first, Mapping) else {}
        for name in names:
            if not NAME.fullmatch(name):
                origin = self.document.keys[section, name]
                yield Problem(origin, f"{section}.{name}", NAMING)
            if name == tree.get("baseline", "base"):
                reason = f"'{name}' is the name of the baseline, the unedited base: rename this {noun}"
                yield self.origins.problem((section, name), reason, at_key=True)
        for layer in self.own[1:]:
            edited = layer.nested.get(section)
            for name, edits in edited.items() if isinstance(edited, Mapping) else ():
                similar = did_you_mean(name, names)
                may_add = isinstance(written, Mapping) and _is_new_arm(section, layer, edits)
                if name not in known and (similar or not may_add):
                    yield self.origins.problem((section, name), f"unknown {noun}{similar}", at_key=True)

    def _contrast_problems(self, sections: StudySections, names: Sequence[str]) -> Iterator[Problem]:
        seen = set[frozenset[str]]()
        for place, contrast in enumerate(sections.contrasts):
            sides = contrast.split(" - ")
            unknown = [side for side in sides if side not in names]
            reason = None
            if unknown:
                reason = f"unknown arm '{unknown[0]}'" + did_you_mean(unknown[0], names)
            elif sections.baseline in sides:
                reason = "every arm is already compared with the baseline"
            elif len(set(sides)) == 1:
                reason = f"compares {sides[0]} with itself"
            elif frozenset(sides) in seen:
                reason = "is given twice"
            seen.add(frozenset(sides))
            if reason is not None:
                yield self.origins.problem(("contrasts", str(place)), f"'{contrast}': {reason}")

    def _base(self, tree: StudyMap, builder: ArmBuilder | None) -> Arm | None:
        """The baseline; None if it has problems, which are recorded."""
        if builder is None or not isinstance(tree.get("arms", {}), Mapping):
            return None
        try:
            return builder.build(tree.get("baseline", "base"), (), ("base",))
        except StudyError as error:
            self.problems += error.problems
            return None

    def plain_arms(self, tree: StudyMap, builder: ArmBuilder | None, base: Arm | None) -> list[Arm]:
        """The baseline, and every edit of it in `arms`; problems are recorded."""
        if builder is None or base is None:
            return []
        plain, problems = builder.build_all(base, self.named_edits(tree, "arms"))
        self.problems += problems
        has_arms = any(tree.get(key) for key in ("arms", "grid", "search"))
        if self.written.needs_arms and not has_arms and not self.problems:
            self.problems.append(self.origins.problem(("arms",), "needs at least one arm, or `grid` or `search`"))
        return plain

    def named_edits(self, tree: StudyMap, section: str) -> dict[str, list[Edit]]:
        """The edits of every arm, or of whatever a section names."""
        written = tree.get(section) or {}
        return {name: self._edits((section, name)) for name, inner in written.items() if isinstance(inner, Mapping)}

    def _builder(self, tree: StudyMap, data: DataSource) -> ArmBuilder | None:
        base = tree.get("base")
        if not isinstance(base, Mapping):
            return None  # _sections reports it
        model = self._base_model(base)
        if model is None:
            return None
        edits = [edit for edit in self._edits(("base",)) if edit.path not in [(key,) for key in base_kinds()]]
        ((key, name),) = _named(base)
        sections = base_kinds()[key].sections(name)
        return ArmBuilder(model, edits, self._valid_train(tree), data, self.origins, sections)

    def _base_model(self, base: Mapping[str, Any]) -> Edits | None:
        """The model that a preset or the like names, at full size; None, with a problem recorded, if there is none."""
        first, *others = _named(base) or [("preset", None)]
        key, given = others[0] if others else first
        reason = None
        if others:
            reason = f"cannot be combined with {first[0]}: set one of them to null"
        elif not isinstance(given, str):
            wrong = "is missing" if given is None else f"must be {base_kinds()[key].what}, not {given!r}"
            reason = f"{wrong} (see `ablate zoo`)"
        else:
            try:
                return base_kinds()[key].model(given, self.written.folder)
            except SpecError as error:
                reason = error.reason
            except AblateError as error:
                reason = str(error)
        self.problems.append(self.origins.problem(("base", key), reason))
        return None

    def _with_tokenizer(self, tree: StudyMap) -> StudyMap:
        """The sections, with the tokenizer of the base, if it has one, unless the study names a tokenizer itself."""
        base, data = tree.get("base"), tree.get("data", {"source": "stdlib"})
        own = (layer.nested.get("data") for layer in self.own)
        named = any("tokenizer" in each for each in own if isinstance(each, Mapping))
        if not isinstance(base, Mapping) or not isinstance(data, Mapping) or named:
            return tree
        for key, given in _named(base):
            try:
                tokenizer = base_kinds()[key].tokenizer(given, self.written.folder) if isinstance(given, str) else None
            except AblateError:
                continue  # _base_model reports it
            if tokenizer:
                return {**tree, "data": {**data, "tokenizer": tokenizer}}
        return tree

    def _brought(self, tree: StudyMap) -> StudyMap:
        """Settings, by path, that come from the shipped scale and that no other layer sets."""
        now, brought = dict(flatten(tree)), StudyMap()
        for layer in self.layers:
            leaves = dict(flatten(layer.nested))
            brought = {path: value for path, value in brought.items() if path not in leaves}
            brought |= leaves if layer.shipped else {}
        return {path: value for path, value in brought.items() if now.get(path) == value}

    def _valid_train(self, tree: StudyMap) -> StudyMap:
        """The training settings; the defaults if they are invalid."""
        train = tree.get(TRAIN, {})
        try:
            TypeAdapter(TrainSpec).validate_python(train)
        except ValidationError:
            return DEFAULT_TRAIN  # _sections reports it
        return dict(train)

    def _edits(self, root: Target) -> list[Edit]:
        """The edits of all layers below a setting, in order."""
        found: list[Edit] = []
        for number, layer in enumerate(self.layers):
            here: Any = layer.nested
            for key in root:
                here = here.get(key) if isinstance(here, Mapping) else None
            if isinstance(here, Mapping):
                found += list(edits_in(here, root, number))
        return found


def _named(base: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The models that a base is, by the keys that name them: there should be one."""
    return [(key, base[key]) for key in base_kinds() if base.get(key) is not None]


def _is_new_arm(section: str, layer: Layer, edits: Any) -> bool:
    """Whether a scale adds an arm, by editing the model. Edits of training alone need an existing arm."""
    adds = section == "arms" and layer.root[:1] == ("scales",) and not layer.is_rung
    return adds and isinstance(edits, Mapping) and any(str(path).partition(".")[0] != "train" for path in edits)
