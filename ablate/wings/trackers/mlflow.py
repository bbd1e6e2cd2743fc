"""MLflow: an experiment per study, a run per run; in `trackers/mlflow/mlflow.db` unless MLFLOW_TRACKING_URI is set."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.tracking import TrackedRun
from zoo.settings.edits import flatten

REMEDY = "pip install mlflow-skinny"
DIGEST = "ablate.digest"
"""The tag by which a resumed run is found."""
LONGEST = 500
"""Maximum length of a parameter's value, in characters: every database of MLflow has room for these."""


@dataclass
class MlflowRun:
    """A run through MLflow's client instead of its global current run, since several runs are open at once. sent: the
    last step logged."""

    client: Any
    id: str
    sent: int

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step <= self.sent:  # logged before the run was resumed
            return
        self._metrics(values, step)
        self.sent = step

    def finish(self, summary: Mapping[str, float], status: str) -> None:
        self._metrics({f"final/{name}": value for name, value in summary.items()}, 0)
        self.client.set_tag(self.id, "status", status)
        self.client.set_terminated(self.id, "FAILED" if status == "failed" else "FINISHED")

    def _metrics(self, values: Mapping[str, float], step: int) -> None:
        metric, now = importlib.import_module("mlflow.entities").Metric, int(1000 * time.time())
        self.client.log_batch(self.id, metrics=[metric(name, value, now, step) for name, value in values.items()])


def begin(run: TrackedRun) -> MlflowRun:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # the default, 7, takes minutes without a server
    address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.folder.resolve() / 'mlflow.db'}"
    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=address)
    found = client.get_experiment_by_name(run.study)
    experiment = found.experiment_id if found else client.create_experiment(run.study)
    known = client.search_runs([experiment], f"tags.`{DIGEST}` = '{run.digest}'", max_results=1)
    if known:
        number = known[0].info.run_id
        client.update_run(number, "RUNNING")
        steps = (metric.step for metric in client.get_metric_history(number, "loss"))
        return MlflowRun(client, number, max(steps, default=-1))
    tags = {DIGEST: run.digest, "ablate.arm": run.arm, "ablate.scale": run.scale}
    made = client.create_run(experiment, run_name=f"{run.scale} {run.name}", tags=tags)
    parameter = importlib.import_module("mlflow.entities").Param
    flat = [parameter(name, str(value)[:LONGEST]) for name, value in flatten(run.config) if value != {}]
    for start in range(0, len(flat), 100):  # the limit of one call
        client.log_batch(made.info.run_id, params=flat[start : start + 100])
    return MlflowRun(client, made.info.run_id, -1)
