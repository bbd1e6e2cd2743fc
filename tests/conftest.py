"""Shared by all tests: one thread, and the folder of real text where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first."""
    items.sort(key=lambda item: item.get_closest_marker("processes") is None)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tests run side by side, so each keeps to one core."""
    import torch  # noqa: PLC0415 (test files that need no torch stay quick to collect)

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_text() -> Path:
    """The folder that ABLATE_TEST_DATA names."""
    folder = os.environ.get("ABLATE_TEST_DATA")
    if not folder:
        pytest.skip("ABLATE_TEST_DATA is not set: no real text to test on")
    return Path(folder)
