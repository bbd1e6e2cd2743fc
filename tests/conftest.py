"""Shared by all tests: one thread, and the folder of real text where there is one."""

from __future__ import annotations

import gc
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

gc.disable()  # until tests are collected: a quarter of that time went to searches among objects that all stay
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of what tests start, too: threads that wait for each other's core spin

settings.register_profile("clockless", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("clockless")  # on a busy machine a draw may wait for a second, which says nothing of the code


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first. On a GPU, compilers and packages of kernels warn of what is theirs."""
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.filterwarnings("default"))
    items.sort(key=lambda item: item.get_closest_marker("processes") is None)


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(autouse=True)
def _settings_of_torch() -> Iterator[None]:
    """Tests run side by side, so each keeps to one core. What one sets, such as the matrix products of `enforce`, does
    not reach the next."""
    import torch  # noqa: PLC0415 (test files that need no torch stay quick to collect)

    gc.collect(1)
    gc.freeze()  # modules and collected tests: every collection that measuring asks for would search them, in 0.5 s
    torch.set_num_threads(1)
    yield
    torch.set_float32_matmul_precision("highest")
    torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def _no_logs_of_others() -> Iterator[None]:
    """Handlers that a test gives the root logger, as a server of the MCP SDK does, print nothing of later ones."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def _no_figures_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["ABLATE_MACHINE_DIR"] = str(tmp_path_factory.getbasetemp() / "machine")


@pytest.fixture(autouse=True)
def _own_figures(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Figures of this machine that a test measures, or makes up, reach no other test."""
    monkeypatch.setenv("ABLATE_MACHINE_DIR", str(tmp_path_factory.getbasetemp() / secrets.token_hex(4)))


@pytest.fixture(scope="session")
def real_text() -> Path:
    """The folder that ABLATE_TEST_DATA names."""
    folder = os.environ.get("ABLATE_TEST_DATA")
    if not folder:
        pytest.skip("ABLATE_TEST_DATA is not set: no real text to test on")
    return Path(folder)


@pytest.fixture(scope="session")
def one_browser() -> Iterator[Any]:
    """One browser for all tests of pages."""
    from tests.reports.browsing import CHROMIUM, playwright  # noqa: PLC0415 (other tests need no browser)

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--headless"])
        yield browser
        browser.close()


@pytest.fixture
def browser(one_browser: Any) -> Iterator[Any]:
    """The browser; pages that the test opens are closed after it."""
    before = one_browser.contexts
    yield one_browser
    for context in one_browser.contexts:
        if context not in before:
            context.close()
