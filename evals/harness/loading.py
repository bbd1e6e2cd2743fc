"""Loading tasks by name, with their data: unavailable tasks are skipped with a reason, and the others are kept."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb

from jinja2 import UndefinedError
from lm_eval.api.group import Group
from lm_eval.api.task import Task
from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Entry, Kind

from evals.harness import catalogue
from evals.harness.catalogue import TaskConfig
from evals.harness.datafiles import SPLITS, TaskDataError, first_line, from_hub, local, offline_first
from evals.harness.selection import TASK_FOLDER, TaskSelection, near
from store.documents import TaskGroup


class UnknownTaskError(ValueError):
    """A task name is not defined, or data is given for a task that is not evaluated."""


@dataclass
class Loaded:
    """lm-eval's tasks and groups by name, and the reasons why others are skipped.

    members: the tasks of each group, skipped ones included; a group without other tasks is only here, not in `groups`.
    """

    tasks: dict[str, Task] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def skip(self, name: str, reason: str) -> None:
        """Skip a task, and remove it from its groups."""
        self.skipped[name] = reason
        del self.tasks[name]
        for group in self.groups.values():
            group.pop(name)
        self.groups = {each: group for each, group in self.groups.items() if group.get_all_tasks()}

    def skip_all(self, reason: str) -> None:
        for name in list(self.tasks):
            self.skip(name, reason)

    def task_groups(self) -> dict[str, TaskGroup]:
        """Tasks that each group's score averages, with equal weight or, for metrics in `by_size`, weighted by items."""
        return {
            name: TaskGroup(
                tasks=tuple(member for member in members if member in self.tasks),
                missing=tuple(member for member in members if member in self.skipped),
                by_size=tuple(sorted(by_size(self.groups[name]))) if name in self.groups else (),
            )
            for name, members in self.members.items()
        }


def by_size(group: Group) -> set[str]:
    """Metrics of a group whose mean gives equal weight to every item instead of every task."""
    return {each.metric for each in group.aggregate_metric_list or () if each.weight_by_size}


def load_tasks(spec: TaskSelection, documents: Sequence[str], seed: int = 0) -> Loaded:
    """Load `spec.tasks`: names of tasks, groups and tags, or paths of task files. Raises UnknownTaskError.

    documents: held-out texts, from which the tasks that ship with the project build their items with the seed.
    """
    index = catalogue.index(spec.tasks, [TASK_FOLDER, *map(Path, spec.include)])
    entries = [
        index.get(name) or (catalogue.from_file(Path(name)) if Path(name).is_file() else None) for name in spec.tasks
    ]
    if missing := [name for name, entry in zip(spec.tasks, entries, strict=True) if entry is None]:
        raise UnknownTaskError(f"unknown evaluation tasks: {', '.join(name + near(name) for name in missing)}")
    if stray := spec.stray_data():
        raise UnknownTaskError(f"data given for tasks that are not evaluated: {', '.join(stray)}")
    given = {"documents": list(documents), "seed": seed}
    places = _places(spec, index)
    loaded = Loaded()
    for name, entry in zip(spec.tasks, entries, strict=True):
        factory = _Factory(given, places, fetch_command([name], spec.include), loaded.skipped)
        built = factory.build(entry, registry=index)
        for each in built if isinstance(built, list) else [built]:
            _collect(each, loaded)
    return loaded


def fetch_command(tasks: Sequence[str], include: Sequence[str]) -> str:
    """Command that downloads the data sets of tasks into the cache, on a machine with a network."""
    folders = [word for folder in include for word in ("--include", folder)]
    return shlex.join(["python", "-m", "evals", "fetch", *tasks, *folders])


def _places(spec: TaskSelection, index: Mapping[str, Entry]) -> dict[str, Path]:
    """File or folder of each task's data. Data given for a task take precedence over data given for its group."""
    inner_last = sorted(spec.data, key=lambda name: -len(list(catalogue.reached([name], index))))
    return {task: Path(spec.data[name]) for name in inner_last for task in catalogue.reached([name], index)}


def _collect(item: Task | Group | _Skipped, loaded: Loaded) -> list[str]:
    """Add a task, or a group with its members, and return the names of its tasks. Groups lose skipped tasks."""
    if isinstance(item, _Skipped):
        return [item.task_name]
    if isinstance(item, Task):
        loaded.tasks[item.task_name] = item
        return [item.task_name]
    names = [name for child in list(item) for name in _collect(child, loaded)]
    for name in [child.task_name for child in item if isinstance(child, _Skipped)]:
        item.pop(name)
    loaded.members[item.name] = names
    if item.get_all_tasks():
        loaded.groups[item.name] = item
    return names


def failure_of(error: Exception) -> str:
    """Reason why a task cannot run, from the error that its own code raised."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    where = f"{Path(frame.f_code.co_filename).name}:{line}"
    return f"its code fails at {where}: {type(error).__name__}{f': {first_line(error)}' if str(error) else ''}"


@dataclass
class _Skipped:
    """Placeholder for a task that is skipped."""

    task_name: str


class _Factory(TaskFactory):  # type: ignore[misc]  # lm_eval has no types
    """Builds lm-eval's tasks with local, cached or downloaded data, and a placeholder for each task that fails."""

    def __init__(
        self, given: Mapping[str, object], places: Mapping[str, Path], fetch: str, skipped: dict[str, str]
    ) -> None:
        super().__init__(meta=given)
        self._places = places
        self._fetch = fetch
        self._skipped = skipped

    def _build_task(self, entry: Entry, overrides: TaskConfig | None) -> Task | _Skipped:
        build, name = super()._build_task, entry.name
        try:
            config = offline_first(lambda: self._load_full_config(entry, overrides), self._fetch)
            name = config["task"]
            whole = {**(overrides or {}), **self._data(entry, name, config)}
            return offline_first(lambda: build(entry, whole), self._fetch)
        except TaskDataError as error:
            self._skipped[name] = str(error)
        except ImportError as error:
            self._skipped[name] = f"it needs a package that is not installed: {first_line(error)}"
        except (KeyError, UndefinedError) as error:
            if name not in self._places:
                self._skipped[name] = failure_of(error)
            else:
                self._skipped[name] = f"{self._places[name]} lacks a field that it reads: {error}"
        except MemoryError:
            raise
        except Exception as error:  # a task's own code may raise any error
            self._skipped[name] = failure_of(error)
        return _Skipped(name)

    def _data(self, entry: Entry, name: str, config: TaskConfig) -> TaskConfig:
        """Settings that point a task to its data."""
        absent: dict[str, None] = {}
        if name in self._places:
            data = local(name, config, self._places[name])
            absent = {key: None for key in SPLITS if config.get(key) not in data}
        elif entry.kind == Kind.PY_TASK or config.get("custom_dataset") or not config.get("dataset_path"):
            return {}
        else:
            data = from_hub(config, self._fetch)
        return {"custom_dataset": lambda **_: data, "dataset_kwargs": None, **absent}
