"""What can be taken off: abilities that no study needs to be planned, trained, judged and shown.

A wing is a folder here. It is deleted as a folder, with its tests; nothing else names it. Its `__init__` defines one
`WING`, plain data that loads nothing heavy:

    WING = Wing(commands=("pack", "merge"), face={"packing": ("pack", "Packed")})

`commands` are files of its folder `commands`, written as those of `ablate/commands`. `face` are the public names of
`import ablate`, by the module of the wing that has them. `adds` are modules of the wing, or "" for its package, by the
place that asks for them (`store.extensions`). Each place says what it expects:

| place | what the wing has there |
|---|---|
| `ablate.cli` | options of every command: `configure(parser)`, and `prepare(words)` before all others are known |
| `ablate.api.running` | what `run --promote` writes: `refuse_promotion(study, path)`, `promote(study, summary, path)` |
| `ablate.running.study_plan` | `plan_lines(study, base, speed, at_once)` on what is planned besides the arms |
| `ablate.running.study_plan.exports` | `exports(arms)`, and `lines(exports)` on them |
| `ablate.running.study_plan.arms` | `forecasts(plan)` of arms' runs: `fields`, `foretold`, `cells`, `remarks` |
| `ablate.commands.plan` | another kind of plan: `configure`, `wanted`, `run` |
| `ablate.commands.plan.known` | what is known: `plan_json(study)` and `remarks(study)`, below all else |
| `ablate.commands.report` | what else it writes: `OPTION`, `configure`, `wanted`, `run` |
| `ablate.planning.campaign` | `refuse_unlike(rungs, plan)`, which raises StudyError for rungs that cannot be compared |
| `ablate.planning.campaign.tuned` | `tuned(rungs, plan, losses, stalls_above, starts)`: stages before the comparison |
| `ablate.planning.checks` | `check(study)`, which raises StudyError for sections that exclude each other |
| `ablate.planning.durations` | `shared_seconds(plans, missing, store, speed)` that training takes less |
| `ablate.planning.make_plan` | `with_sources(study, arms)`, and models read in training: `read_beside(study, arms)` |
| `ablate.planning.make_plan.matched` | `match_parameters(study, specs, match)` of arms to the baseline's |
| `ablate.planning.plan_shown` | `plan_json(plan)`, fields of a plan, and `remarks(study)` below its table |
| `ablate.planning.plan_shown.tuning` | `remarks(study, starts)` and `tuning_runs(tune, starts)`, in full runs |
| `ablate.planning.campaign.starts` | `search_starts(study, plan, store, keep)`: where searches for rates begin |
| `ablate.planning.prospects` | `standings(arm)`: baselines of like size, as `LikelyStanding` |
| `ablate.planning.study_document` | `fields(study, document)` to add to a study's document |
| `ablate.running.context` | `clock(context, study)`: step times, for budgets in seconds |
| `ablate.running.corpora` | models from elsewhere: `prepare_sources(study, store)`, and a `receipt(study)` in lines |
| `ablate.running.engines` | engines, one per file |
| `ablate.running.forkserver` | `Programs(work, unused).run(request, path)`: the status of a worker, if it forks it |
| `ablate.running.phases` | what runs have in common: `begin(store, request)`, `copies`, `end` |
| `ablate.running.request` | `with_kin(requests, runs)`: requests that name such runs |
| `ablate.running.stages` | `completed(document, study, folder, before, had_result)`: a study's document |
| `ablate.study.arms` | `arms(reader, tree, sections, builder, base)` from other keys, and what judges them |
| `ablate.study.reading` | `with_remedy(problem)`, which may say more of what is wrong |
| `ablate.study.rung_reader` | `problems(reader, builder, sections, arms, factors)` of its keys |
| `ablate.study.scales` | `rungs(places)`: smaller studies of the same question, with problems |
| `ablate.study.sections` | `KEYS`: a spec whose fields are more keys of a study |
| `ablate.study.sources` | models from elsewhere: `SOURCES` by section of an arm, `BASES` by key of `base` |
| `ablate.training.batch` | runs by several processes: `process_group_of(request)`, `refusal(run, …)` |
| `ablate.training.weights` | `PARTS`: settings of training that add weights to frozen ones |
| `ablate.training.session` | `initial_model(store, run, start)`, `taught(store, teacher, loss, device)` |
| `ablate.running.trackers` | `Trackers`, which follow the runs of a study, and `check(names)` of these |
| `ablate.training.trained` | `published(folder, bos)`: conventions of a model from elsewhere |
| `ablate.tracking` | trackers, one per file |
| `reports.judge.findings.summary` | `judge_effects(data)`, of studies whose arms are not compared one by one |
| `reports.judge.findings.next_steps` | `steps(summary)`: commands that follow from the verdicts |
| `reports.page.wording` | the words on such effects (`effect_words`) |
| `reports.page.wording.answers` | `beside(summary)`, sentences, and `in_json(summary)`, fields by arm or effect |
| `reports.page.sections` | sections of a study's page, one per file |
| `ablate.open` | `search_rows(store)`: a row for each search |
| `ablate.api.named` | `named(store)`: folder, name and scale of each search |
| `ablate.evaluate` | `imported_first`, which makes a run of a checkpoint's folder |
| `ablate.api.reporting` | `render_site(store)` and `render_other(folder)`, pages that are no study's |
| `ablate.check` | logs for `check`: `listings(store)`, `read(store, name)`; `unpackable(study)` |
| `ablate.check.searches` | `every_folder(store)` of searches, to be checked |
| `store.store` | `known_outcomes(root)` of runs, by digest |
| `store.tables` | an `Index` of what is read of many runs |
| `store.documents` | documents that it stores, for their reference |
| `ablate.pages` | a `SHOWN`: what else the pages of a store show (`StorePages`) |
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from store.extensions import extend


@dataclass(frozen=True)
class Wing:
    """Declaration of what a wing adds to the command line and to the Python face."""

    commands: tuple[str, ...] = ()
    """Commands, in the order of the help."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Group of the help of each: ask, run, look, share or, if not told, models."""
    folded: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Commands that the help does not list, with the command and the option of it that do the same."""
    face: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Public names by module."""
    adds: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Modules, one or several, by the place that they are added to."""
    needs: tuple[str, ...] = ()
    """Folders of other wings that it builds on: without them, it is not there either."""


@cache
def wings() -> dict[str, Wing]:
    """Every wing that is there, with all that it builds on, by the name of its package, in alphabetical order."""
    names = sorted(f"{__name__}.{each.name}" for each in pkgutil.iter_modules(__path__) if each.ispkg)
    found: dict[str, Wing] = {name: importlib.import_module(name).WING for name in names}
    root = Path(__file__).parents[2]

    def is_there(folder: str) -> bool:
        own = found.get(folder.replace("/", "."), Wing())
        return (root / folder).is_dir() and all(map(is_there, own.needs))

    return {name: wing for name, wing in found.items() if is_there(name.replace(".", "/"))}


def commands() -> dict[str, str]:
    """Module of every command of the wings, by its name."""
    return {each: f"{name}.commands.{each}" for name, wing in wings().items() for each in wing.commands}


def groups() -> dict[str, str]:
    """Group of every command of the wings."""
    return {each: wing.groups.get(each, "models") for wing in wings().values() for each in wing.commands}


def folded() -> dict[str, tuple[str, str]]:
    return {name: home for wing in wings().values() for name, home in wing.folded.items()}


def face() -> dict[str, str]:
    """Module of every public name of the wings."""
    return {
        name: f"{package}.{module}"
        for package, wing in wings().items()
        for module, names in wing.face.items()
        for name in names
    }


for _name, _wing in wings().items():
    for _place, _modules in _wing.adds.items():
        for _module in (_modules,) if isinstance(_modules, str) else _modules:
            extend(_place, f"{_name}.{_module}".rstrip("."))
