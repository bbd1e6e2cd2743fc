"""Which tasks exist, without loading lm-eval for those that ship with the project."""

from __future__ import annotations

import hashlib
from pathlib import Path

from evals.spec import EvalSpec
from zoo.errors import did_you_mean

TASK_SUFFIXES = {".yaml", ".yml", ".py", ".json", ".jsonl"}
"""What a task file may be made of."""

SHIPPED = tuple(sorted(path.stem for path in (Path(__file__).parent / "tasks").glob("*.yaml")))


def located(spec: EvalSpec, base: Path) -> EvalSpec:
    """The same, with absolute paths: folders, and tasks that are files, are taken from `base`."""
    tasks = (str((base / name).resolve()) if (base / name).is_file() else name for name in spec.tasks)
    folders = (str((base / Path(name).expanduser()).resolve()) for name in spec.include)
    return spec.model_copy(update={"tasks": tuple(tasks), "include": tuple(folders)})


def content_of_own(spec: EvalSpec) -> str | None:
    """sha256 over the task files that are not ours and what lies beside them, by name; None where there are none.

    Scores belong to what the tasks say, not to what they are called.
    """
    folders = [Path(name) for name in spec.include]
    files = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    for name in spec.tasks:
        if Path(name).is_file():
            files |= {path for path in Path(name).parent.iterdir() if path.suffix in TASK_SUFFIXES and path.is_file()}
    kept = sorted(path for path in files if "__pycache__" not in path.parts)
    if not kept:
        return None
    digest = hashlib.sha256()
    for path in kept:
        digest.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def unknown_tasks(spec: EvalSpec) -> list[str]:
    """The tasks of a spec that nothing defines.

    lm-eval's own, which take seconds to index, are read only for a name that is not nearly one of ours.
    """
    others = [name for name in spec.tasks if name not in SHIPPED and not Path(name).is_file()]
    if not others or all(did_you_mean(name, SHIPPED) for name in others):
        return others
    from lm_eval.tasks.manager import TaskManager  # noqa: PLC0415 (slow to load)

    known = TaskManager(include_path=list(spec.include) or None).task_index
    return [name for name in others if name not in known]
