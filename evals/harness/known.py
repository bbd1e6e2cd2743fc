"""Which tasks exist, without loading lm-eval for those that ship with the project."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import did_you_mean

if TYPE_CHECKING:
    from evals.evaluations.tasks import TasksSpec

TASK_SUFFIXES = {".yaml", ".yml", ".py", ".json", ".jsonl"}
"""File types that a task may consist of."""

DATA_SUFFIXES = (".parquet", ".jsonl", ".json", ".jsonl.gz", ".json.gz")
"""File types of a task's local data."""

TASK_FOLDER = Path(__file__).parent / "tasks"
SHIPPED = tuple(sorted(path.stem for path in TASK_FOLDER.glob("*.yaml")))


def content_of_tasks(spec: TasksSpec) -> str | None:
    """sha256 over the files of the tasks that ship with the project, over task files of the user's with what lies
    beside them, and over local data; None where there are none.

    Scores belong to what the tasks say, not to what they are called.
    """
    files = {path for name in spec.include for path in Path(name).rglob("*")}
    # What else lies beside data, such as what the hub's client notes of a download, is never read.
    files |= {
        path for name in spec.data.values() for path in Path(name).rglob("*") if path.name.endswith(DATA_SUFFIXES)
    }
    files |= {Path(name) for name in spec.data.values()}
    files |= {TASK_FOLDER / f"{name}.yaml" for name in spec.tasks if name in SHIPPED}
    for name in spec.tasks:
        if Path(name).is_file():
            files |= {path for path in Path(name).parent.iterdir() if path.suffix in TASK_SUFFIXES and path.is_file()}
    kept = sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts)
    if not kept:
        return None
    digest = hashlib.sha256()
    for path in kept:
        digest.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def unknown_tasks(spec: TasksSpec) -> list[str]:
    """The tasks of a spec that nothing defines. lm-eval is loaded only where a name is not one of ours."""
    others = [name for name in spec.tasks if name not in SHIPPED and not Path(name).is_file()]
    if not others:
        return []
    from evals.harness import catalogue  # noqa: PLC0415 (slow to load)

    known = catalogue.index(others, [Path(name) for name in spec.include])
    return [name for name in others if name not in known]


def near(name: str) -> str:
    """`" (did you mean 'x'?)"`, x being the nearest task that exists, or nothing."""
    if ours := did_you_mean(name, SHIPPED):
        return ours
    from evals.harness import catalogue  # noqa: PLC0415 (slow to load)

    return catalogue.near(name)


def stray_data(spec: TasksSpec) -> list[str]:
    """The names in `spec.data` that none of its tasks has, nor any of their groups."""
    left = set(spec.data) - set(spec.tasks)
    if not left:
        return []
    from evals.harness import catalogue  # noqa: PLC0415 (slow to load)

    known = catalogue.index(spec.tasks, [TASK_FOLDER, *map(Path, spec.include)])
    return sorted(left - set(catalogue.reached(spec.tasks, known)))
