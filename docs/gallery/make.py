"""Rebuild the gallery: run the studies that the store lacks, look at each report at three widths, light and dark, and
picture its first screen.

    python docs/gallery/make.py [--store runs] [STUDY …]

A page that is wider than its window, or says anything to the browser's console, ends it. Eight studies at the scale
`cpu` take about two hours on two cores; what the store has is not trained again.
Needs the extra `test`, whose Playwright drives an installed Chromium.
"""

from __future__ import annotations

import argparse
import base64
import shutil
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

import ablate

HERE = Path(__file__).parent
STUDIES = (
    "norm_placement",
    "gqa_groups",
    "gated_attention",
    "value_streams",
    "hyper_connections",
    "looped",
    "short_convolutions",
    "rope_base",
)
SCALE = "cpu"
WIDTH, HEIGHT = 1280, 860
WIDTHS, SCHEMES = (390, WIDTH, 2560), ("light", "dark")
QUALITY = 70
DRAWN = "[...document.querySelectorAll('.drawing')].every(div => div.querySelector('.main-svg'))"
STEPS, STEP_MS = 300, 100
"""Number of checks for a page to be drawn, and the pause between checks in milliseconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", default=STUDIES, metavar="STUDY")
    parser.add_argument("--store", default="runs")
    parser.add_argument("--note", help="what readers of the page should know of these runs")
    parser.add_argument("--as-stored", action="store_true", help="picture what the store has, and train nothing")
    options = parser.parse_args()
    results = [_result(name, options.store, options.as_stored) for name in options.studies]
    index = ablate.report(options.store)
    pictures = {result.name: _report(result) for result in results}
    pictures["trade-offs"] = index.with_name("trade-offs.html")
    with TemporaryDirectory() as folder:
        pictures["atlas"] = ablate.atlas([options.store], out=folder)
        pictures["models"] = pictures["atlas"].with_name("models.html")
        _draw(pictures)
    (HERE / "README.md").write_text("\n".join(_page(results, options.note)) + "\n", encoding="utf-8")


def _result(name: str, store: str, as_stored: bool) -> ablate.StudyResult:
    if as_stored:
        return ablate.open(store).result(name, SCALE)
    return ablate.run(name, scale=SCALE, store=store)


def _report(result: ablate.StudyResult) -> Path:
    if result.report is None:
        raise SystemExit(f"{result.name}: no run has ended")
    return result.report


def _draw(pages: dict[str, Path]) -> None:
    """A picture of the first screen of each page, which was looked at before."""
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, path in pages.items():
            _check(browser, path)
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(path.resolve().as_uri())
            _wait(page)
            (HERE / f"{name}.webp").write_bytes(_webp(page))
            page.close()
        browser.close()


def _check(browser: Browser, path: Path) -> None:
    for width, scheme in product(WIDTHS, SCHEMES):
        page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
        said: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.goto(path.resolve().as_uri())
        _wait(page)
        wide = page.evaluate("document.documentElement.scrollWidth")
        if said or wide > width:
            raise SystemExit(f"{path} at {width} px, {scheme}: {wide} px wide; console: {said}")
        page.close()


def _wait(page: Page) -> None:
    for _ in range(STEPS):
        if page.evaluate(DRAWN):
            return
        page.wait_for_timeout(STEP_MS)
    raise SystemExit(f"{page.url} was not drawn")


def _webp(page: Page) -> bytes:
    """Playwright itself writes no WebP, a fifth of the size of PNG."""
    session: Any = page.context.new_cdp_session(page)
    found = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    return base64.b64decode(found["data"])


def _page(results: Sequence[ablate.StudyResult], note: str | None) -> Iterator[str]:
    yield "# Gallery"
    yield ""
    yield "The first screen of each report. `python docs/gallery/make.py` trains, measures and pictures them again, and"
    yield "writes this page."
    if note:
        yield ""
        yield note
    for result in results:
        yield ""
        yield f"## {result.name}"
        yield ""
        yield result.headline
        yield ""
        yield f"![First screen of the report]({result.name}.webp)"
        yield ""
        yield f"`ablate run studies/{result.name}.yaml --scale {SCALE}`"
    yield ""
    yield "## All of them in one plane"
    yield ""
    yield "Every arm against the baseline of its study: `trade-offs.html`, beside the store's index."
    yield ""
    yield "![Trade-offs of all studies](trade-offs.webp)"
    yield ""
    yield "## The atlas"
    yield ""
    yield "A card for each claim that the studies state (`ablate atlas`), and the table of published models."
    yield ""
    yield "![Claims, and whether they hold](atlas.webp)"
    yield ""
    yield "![Published models](models.webp)"


if __name__ == "__main__":
    main()
