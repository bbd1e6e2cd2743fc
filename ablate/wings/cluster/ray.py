"""Engine that runs tasks on a Ray cluster: an existing one (`--address`, `$RAY_ADDRESS`), or one started on this
machine.

A run takes a CPU for each of its devices, and a share of a GPU (`--workers-per-gpu`). A run whose node is lost resumes
from its saved state on another. If the head node is lost, all runs fail; the same command resumes them on another
cluster. Nodes need the store, the corpora and this installation under the same paths as here.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from ablate.machine.environment import cores
from ablate.running.engines import Engine, EngineError
from ablate.running.engines._polling import Polling
from ablate.running.options import Options
from ablate.running.rehearsal import CalibrationError, Rehearsal, Timed
from ablate.running.request import Request
from ablate.training.stop import ENDED_BY_REQUEST
from ablate.wings.cluster._remote import SubmittedRun, run_on_node, time_on_node
from zoo.settings.registry import VARIABLE

try:
    import ray
except ModuleNotFoundError:  # an extra
    ray = None

ANSWER_SECONDS = 10.0
LOST_SECONDS = 20.0
"""Seconds of the head's silence after which the cluster counts as lost; shorter ones may be a restart. Ray ends this
process after 60 s, so failures have to be reported before."""
LOOK_SECONDS = 2.0
AGAIN = "run the same command again to resume"


def build(options: Options) -> Engine:
    if ray is None:
        raise EngineError("the engine ray needs the package ray: pip install ray")
    settings = dict(options.engine_settings or {})
    address = settings.pop("address", None)
    if settings:
        raise EngineError(f"the engine ray has no setting {min(settings)}; its only one is address")
    _connect(address)
    device = options.device or ("cuda" if _resources("GPU") else "cpu")
    engine = Ray(device, options.workers, options.workers_per_gpu, options.devices)
    if engine.at_once == 0:
        raise EngineError(f"the Ray cluster has no {'GPU' if engine.device == 'cuda' else 'CPU'}")
    return engine


class Ray(Polling):
    """Engine on a Ray cluster. workers: None for as many as the cluster holds; a larger number waits for new nodes."""

    poll_seconds = 0.2
    here = False

    def __init__(self, device: str, workers: int | None, workers_per_gpu: int = 1, devices: int = 1) -> None:
        super().__init__()
        self.device, self.workers, self.workers_per_gpu, self.devices = device, workers, workers_per_gpu, devices
        self._head = _Head()
        self._known: int | None = None

    @property
    def at_once(self) -> int:
        return self.workers or (self._room() if self._known is None else self._known)

    def _room(self) -> int:
        """Number of concurrent runs that the cluster holds. Blocks while the head does not answer."""
        held = _resources("GPU") * self.workers_per_gpu if self.device == "cuda" else _resources("CPU")
        return held // self.devices

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Poll the cluster's capacity in a separate thread, since a query blocks if the head does not answer."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(LOOK_SECONDS):
                self._known = self._room()

        self._known = self._room()
        threading.Thread(target=look, daemon=True).start()
        try:
            yield
        finally:
            ended.set()  # keep the last known capacity: a lost head would not answer

    @property
    def where(self) -> str:
        share = f", {self.workers_per_gpu} runs on each GPU" if self.workers_per_gpu > 1 else ""
        return f"a Ray cluster's {'GPUs' if self.device == 'cuda' else 'CPUs'}{share}"

    def start(self, requests: Sequence[Request]) -> Sequence[_Task]:
        return [_Task(request, self._submit(request), self._submit, self._head) for request in requests]

    def _submit(self, request: Request) -> Any:
        # Ray counts GPUs in units of 1/10,000: round the share down.
        gpus = self.devices * int(1e4 / self.workers_per_gpu) / 1e4 if self.device == "cuda" else 0
        return _task(run_on_node, gpus, cpus=self.devices).remote(self.device, request.to_json())

    def rehearse(self, request: Rehearsal, *, alone: bool) -> Timed:
        on_gpu = self.device == "cuda"
        beside = self.workers_per_gpu if on_gpu else 1
        task = _task(time_on_node, int(on_gpu)).remote(request.to_json(), beside, alone)
        try:
            return Timed.model_validate_json(ray.get(task))
        except ray.exceptions.RayError as error:
            reason = _last_line(error)
            raise CalibrationError(f"speeds could not be measured: {reason}") from error
        finally:
            ray.cancel(task)


class _Head:
    """The head node, on which the cluster depends."""

    def __init__(self) -> None:
        self.address = ray.get_runtime_context().gcs_address
        self._answered = self._asked = time.monotonic()

    def answers(self) -> bool:
        """Whether the head answers now."""
        self._asked = time.monotonic()
        with suppress(EngineError):
            _answers(self.address)
            self._answered = self._asked
        return self._answered == self._asked

    def is_lost(self) -> bool:
        """Whether the head has not answered for `LOST_SECONDS`."""
        if time.monotonic() - self._asked > LOOK_SECONDS:
            self.answers()
        return self._asked - self._answered > LOST_SECONDS


class _Task(SubmittedRun):
    def __init__(self, request: Request, handle: Any, again: Callable[[Request], Any], head: _Head) -> None:
        super().__init__(request, handle, again)
        self._head = head

    def outcome(self) -> tuple[int, str] | None:
        if self._head.is_lost():
            return 1, f"the Ray cluster at {self._head.address} does not answer: {AGAIN}"
        try:
            if not ray.wait([self.handle], timeout=0)[0]:
                return None
            return ray.get(self.handle), ""
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
            if not self._head.answers():  # a resubmission would block until the head answers
                return None
            return ENDED_BY_REQUEST, f"its node was lost: {_last_line(error)}"
        except ray.exceptions.RayError as error:
            # Without its own node, this process can submit to no other.
            is_ours = isinstance(error, ray.exceptions.LocalRayletDiedError)
            lost = "this machine's node is lost" if is_ours else _last_line(error)
            return 1, f"the Ray cluster at {self._head.address}: {lost}: {AGAIN}"

    def cancel(self) -> None:
        ray.cancel(self.handle)


def _connect(address: str | None) -> None:
    """Connect to a cluster, unless the caller has; turn off Ray's logging and usage statistics. Raises EngineError."""
    if ray.is_initialized():
        return
    if address is not None:
        _answers(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # for a cluster started here; the default is 15
    own = {} if address or os.environ.get("RAY_ADDRESS") else {"num_cpus": cores(), "include_dashboard": False}
    connect = partial(ray.init, address, logging_level=logging.ERROR, log_to_driver=False, **own)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # announcements of future changes
            connect()
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise EngineError(f"there is no Ray cluster at {address}: {_last_line(error)}") from error


def _answers(address: str) -> None:
    """Raise EngineError if nothing listens at an address: Ray itself would retry for a quarter of an hour."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # `auto` and the like
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise EngineError(f"there is no Ray cluster at {address}: {error}") from error


def _resources(kind: str) -> int:
    """Total amount of a resource in the cluster, in use or free."""
    return int(ray.cluster_resources().get(kind, 0))


def _task(function: Any, gpus: float, cpus: int = 1) -> Any:
    """A Ray task without Ray's own retries, as `SubmittedRun` decides when to resubmit. Passes the variable that names
    plug-ins, since the cluster may have been started without it."""
    plugged = {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}
    return ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": plugged})(function)


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
