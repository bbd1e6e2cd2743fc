"""Machine properties that decide a run's bits, and the message about a GPU that is not used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ablate.machine import numerics
from ablate.machine.numerics import Numerics, deterministic, enforce, restored, unused_gpu
from ablate.training.session import Session
from store import Store
from store.documents import RunNumerics

H200 = Numerics("cuda", "bfloat16", "high", "NVIDIA H200, cuDNN 91002")


@pytest.mark.parametrize(
    ("gpu", "meets"),
    [("NVIDIA H200, cuDNN 91002", True), ("NVIDIA H200, cuDNN 90100", False), ("NVIDIA L4", False), (None, True)],
    ids=["same", "older cuDNN", "another", "any"],
)
def test_a_run_is_carried_out_on_the_gpu_that_it_was_planned_for(gpu: str | None, meets: bool) -> None:
    """One that was planned on a login node names none."""
    wanted = RunNumerics(device="cuda", dtype="bfloat16", matmul="high", gpu=gpu)
    assert H200.meets(wanted) is meets
    assert not H200.meets(wanted.model_copy(update={"dtype": "float32"}))


@pytest.mark.parametrize(
    ("flash_3", "fla", "gpu"),
    [
        (False, False, "NVIDIA H200, cuDNN 91002"),
        (True, False, "NVIDIA H200, cuDNN 91002, FlashAttention-3"),
        (False, True, "NVIDIA H200, cuDNN 91002, flash-linear-attention"),
        (True, True, "NVIDIA H200, cuDNN 91002, FlashAttention-3, flash-linear-attention"),
    ],
)
def test_runs_with_and_without_installed_kernels_are_different_runs(
    flash_3: bool, fla: bool, gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numerics, "use_flash_3", lambda: flash_3)
    monkeypatch.setattr(numerics, "use_fla", lambda: fla)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    with restored():
        found = enforce("cuda", "bfloat16")
    assert found.identity().gpu == gpu
    assert found.meets(H200.identity()) is (gpu == H200.gpu)


def test_a_gpu_that_is_not_used_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "version"
    assert unused_gpu(driver) is None
    driver.touch()
    monkeypatch.setattr(torch.version, "cuda", None)
    assert unused_gpu(driver) == f"torch {torch.__version__} was built without CUDA"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    reason = unused_gpu(driver)
    assert reason is not None and reason.endswith("the driver is too old for CUDA 13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert unused_gpu(driver) is None


def test_kernels_of_one_order_are_asked_for_in_steps_and_scores_alone(identity, corpus, numerics, tmp_path) -> None:
    asked = []
    session = Session(Store(tmp_path), identity(steps=1, deterministic=True), corpus, numerics)
    for owner, name in ((session.learner, "loss"), (session.model, "nats")):
        real = getattr(owner, name)

        def seen(*args, real=real, **given):
            asked.append(torch.are_deterministic_algorithms_enabled())
            return real(*args, **given)

        setattr(owner, name, seen)
    session.run()
    assert len(asked) > 2 and all(asked)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu
def test_deterministic_products_have_the_same_bits() -> None:
    index = torch.randint(64, (2**16,), device="cuda")
    values = torch.randn(2**16, 32, device="cuda")
    with deterministic(True):
        first, *others = (torch.zeros(64, 32, device="cuda").index_add_(0, index, values) for _ in range(5))
    assert all(torch.equal(first, other) for other in others)
