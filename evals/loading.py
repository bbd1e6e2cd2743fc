"""Tasks by name, with their data: what cannot be had is set aside, with the reason, and the others go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError
from lm_eval.api.group import Group
from lm_eval.api.task import Task
from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Entry, Kind, TaskIndex

from evals import catalogue
from evals.datafiles import SPLITS, DataError, from_hub, local
from evals.known import TASK_FOLDER, stray_data
from evals.spec import EvalSpec


class UnknownTaskError(ValueError):
    """A task name that nothing defines."""


@dataclass
class Loaded:
    """lm-eval's tasks and groups by name, and why others are not among them.

    members: the tasks of each group, those that are skipped too.
    """

    tasks: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def load_tasks(spec: EvalSpec, documents: Sequence[str]) -> Loaded:
    """`spec.tasks`: names of tasks, groups and tags, or paths of task files. Raises UnknownTaskError.

    documents: what the tasks that ship with the project make their items of.
    """
    index = catalogue.index(spec.tasks, [TASK_FOLDER, *map(Path, spec.include)])
    entries = [index.get(name) or TaskIndex.entry_from_path(Path(name)) for name in spec.tasks]
    if missing := [name for name, entry in zip(spec.tasks, entries, strict=True) if entry is None]:
        raise UnknownTaskError(f"unknown evaluation tasks: {', '.join(missing)}")
    if stray := stray_data(spec):
        raise UnknownTaskError(f"data for what is not evaluated: {', '.join(stray)}")
    factory = _Factory({"documents": list(documents), "seed": spec.seed}, _places(spec, index))
    loaded = Loaded(skipped=factory.skipped)
    for entry in entries:
        built = factory.build(entry, registry=index)
        for each in built if isinstance(built, list) else [built]:
            _collect(each, loaded)
    return loaded


def _places(spec: EvalSpec, index: Mapping[str, Entry]) -> dict[str, Path]:
    """Where the data of each task lie. What is said of a task counts before what is said of its group."""
    inner_last = sorted(spec.data, key=lambda name: -len(list(catalogue.reached([name], index))))
    return {task: Path(spec.data[name]) for name in inner_last for task in catalogue.reached([name], index)}


def _collect(item: Task | Group | _Skipped, loaded: Loaded) -> list[str]:
    """Enter a task, or a group and all in it; returns the names of its tasks. Groups lose what is skipped."""
    if isinstance(item, _Skipped):
        return [item.task_name]
    if isinstance(item, Task):
        loaded.tasks[item.task_name] = item
        return [item.task_name]
    names = [name for child in list(item) for name in _collect(child, loaded)]
    for name in [child.task_name for child in item if isinstance(child, _Skipped)]:
        item.pop(name)
    if item.get_all_tasks():
        loaded.groups[item.name] = item
        loaded.members[item.name] = names
    return names


@dataclass
class _Skipped:
    """Stands where a task would."""

    task_name: str


class _Factory(TaskFactory):  # type: ignore[misc]  # lm_eval has no types
    """Makes lm-eval's tasks with data from where they are, and a placeholder where there are none."""

    def __init__(self, given: dict[str, Any], places: Mapping[str, Path]) -> None:
        super().__init__(meta=given)
        self._places = places
        self.skipped: dict[str, str] = {}

    def _build_task(self, entry: Entry, overrides: dict[str, Any] | None) -> Task | _Skipped:
        config = self._load_full_config(entry, overrides)
        name = config["task"]
        try:
            return super()._build_task(entry, {**(overrides or {}), **self._data(entry, name, config)})
        except DataError as error:
            self.skipped[name] = str(error)
        except (KeyError, UndefinedError) as error:
            if name not in self._places:
                raise
            self.skipped[name] = f"{self._places[name]} has not the fields that it reads: {error}"
        return _Skipped(name)

    def _data(self, entry: Entry, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a task's settings that says where its data come from."""
        absent: dict[str, Any] = {}
        if name in self._places:
            data = local(name, config, self._places[name])
            absent = {key: None for key in SPLITS if config.get(key) not in data}
        elif entry.kind == Kind.PY_TASK or config.get("custom_dataset") or not config.get("dataset_path"):
            return {}
        else:
            data = from_hub(config)
        return {"custom_dataset": lambda **_: data, "dataset_kwargs": None, **absent}
