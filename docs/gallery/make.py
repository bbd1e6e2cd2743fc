"""Rebuild the gallery: check each page at three widths, light and dark, and save a picture of its first screen; of one
result and the atlas, at each of these.

    python docs/gallery/make.py --recorded                    of the recorded results and the atlas, in a minute
    python docs/gallery/make.py [--store runs] [STUDY …]      of reports, after running the studies that the store lacks

A page that is wider than its window, or that logs to the browser's console, stops the script. Eight studies at the
scale `cpu` take about two hours on two cores; runs in the store are not trained again. Needs the extra `test`, whose
Playwright drives an installed Chromium.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

import ablate
from ablate.study.written import RESULTS
from ablate.wings.science.atlas import gathered

HERE = Path(__file__).parent
STUDIES = (
    "norm_placement",
    "ffn_activation",
    "rope_base",
    "gqa_groups",
    "swa_nope",
    "value_streams",
    "depth_training",
    "short_convolutions",
)
SCALE = "cpu"
PLANE = "trade-offs"
RECORDED = """Each [recorded result](../../studies/results) as the atlas shows it: the figure is that of its report,
where loss curves, costs, evaluations and runs follow. A picture opens in full; a name leads to the study file, which
`ablate run` takes. `python docs/gallery/make.py --recorded` pictures them again, and writes this page."""
OF_REPORTS = """The first screen of each report. `python docs/gallery/make.py` trains, measures and pictures them
again, and writes this page."""
WIDTH, HEIGHT = 1280, 860
COLUMNS = 3
"""Pictures in a row of the page."""
WIDTHS, SCHEMES = (390, WIDTH, 1920), ("light", "dark")
QUALITY = 70
DRAWN = "[...document.querySelectorAll('.drawing')].every(div => div.querySelector('.main-svg'))"
SCREENS = {"screens": "swa_nope", "atlas_screens": "atlas"}
"""Pictures of a page at every width, light above dark."""
STEPS, STEP_MS = 300, 100
"""Number of checks whether a page is drawn, and the pause between checks in milliseconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", default=STUDIES, metavar="STUDY")
    parser.add_argument("--store", default="runs")
    parser.add_argument("--note", help="what readers of the page should know of these runs")
    parser.add_argument("--as-stored", action="store_true", help="picture what the store has, and train nothing")
    parser.add_argument("--recorded", action="store_true", help="picture recorded results alone")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = _recorded(Path(folder)) if options.recorded else _reports(options, Path(folder))
        _draw({**found.pages, "atlas": found.atlas, "models": found.atlas.with_name("models.html")})
    for left in HERE.glob("*.webp"):
        if left.stem not in {*found.pages, *SCREENS, "atlas", "models"}:
            left.unlink()
    (HERE / "README.md").write_text("\n".join(_page(found, options.note)) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Found:
    """Pages to picture by name, the atlas, and the name, answer and command of each study."""

    pages: dict[str, Path]
    atlas: Path
    studies: Sequence[tuple[str, str, str]]
    about: str


def _recorded(folder: Path) -> Found:
    """Pages of the recorded results that ship."""
    results, _ = gathered([RESULTS])
    atlas = ablate.atlas(out=folder)
    names = [each.study if each.scale == SCALE else re.sub(r"\W", "_", each.name) for each in results]
    pages = {name: folder / "results" / f"{each.name}.html" for name, each in zip(names, results, strict=True)}
    said = [(name, each.answer, each.command) for name, each in zip(names, results, strict=True)]
    return Found(pages, atlas, said, RECORDED)


def _reports(options: argparse.Namespace, folder: Path) -> Found:
    """Reports of a store's studies, and the plane of all their arms."""
    results = [_result(name, options.store, options.as_stored) for name in options.studies]
    index = ablate.report(options.store)
    pages = {result.name: _report(result) for result in results} | {PLANE: index.with_name("trade-offs.html")}
    said = [(each.name, each.headline, f"ablate run studies/{each.name}.yaml --scale {SCALE}") for each in results]
    return Found(pages, ablate.atlas([options.store], out=folder), said, OF_REPORTS)


def _result(name: str, store: str, as_stored: bool) -> ablate.StudyResult:
    if as_stored:
        return ablate.open(store).result(name, SCALE)
    return ablate.run(name, scale=SCALE, store=store)


def _report(result: ablate.StudyResult) -> Path:
    if result.report is None:
        raise SystemExit(f"{result.name}: no run has ended")
    return result.report


def _draw(pages: dict[str, Path]) -> None:
    """Check each page, and save a picture of its first screen."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    browser_path = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, path in pages.items():
            _check(browser, path)
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(path.resolve().as_uri())
            _wait(page)
            (HERE / f"{name}.webp").write_bytes(_webp(page))
            page.close()
        for name, of in SCREENS.items():
            (HERE / f"{name}.webp").write_bytes(_screens(browser, pages[of]))
        browser.close()


def _screens(browser: Browser, path: Path) -> bytes:
    """One picture of a page's first screen at every width, at half the size."""
    shots = []
    for scheme, width in product(SCHEMES, WIDTHS):
        page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
        page.goto(path.resolve().as_uri())
        _wait(page)
        shots.append(base64.b64encode(page.screenshot()).decode())
        page.close()
    sheet = browser.new_page(viewport={"width": sum(WIDTHS) // 2 + 40, "height": HEIGHT + 30})
    images = "".join(f'<img height="{HEIGHT // 2}" src="data:image/png;base64,{shot}"> ' for shot in shots)
    sheet.set_content(f'<body style="background: #888; margin: 8px">{images}</body>')
    found = _webp(sheet)
    sheet.close()
    return found


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
    """A screenshot as WebP, a fifth of the size of PNG, which Playwright itself cannot write."""
    session: Any = page.context.new_cdp_session(page)
    found = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    return base64.b64decode(found["data"])


def _cell(name: str, answer: str, command: str) -> str:
    """A study's picture, which opens in full, its name, which leads to the file, and its answer."""
    picture = f"[![Question, answer and every arm of {name}]({name}.webp)]({name}.webp)"
    return f"{picture}<br>[`{name}`](../../{command.split()[2]}): {answer}"


def _page(found: Found, note: str | None) -> Iterator[str]:
    yield "# Gallery"
    yield ""
    yield found.about
    if note:
        yield ""
        yield note
    cells = [_cell(*each) for each in found.studies]
    yield from ("", f"|{' |' * COLUMNS}", f"|{'---|' * COLUMNS}")
    for i in range(0, len(cells), COLUMNS):
        yield f"| {' | '.join(cells[i : i + COLUMNS])} |"
    if PLANE in found.pages:
        yield from ("", "## All of them in one plane", "")
        yield "Every arm against the baseline of its study: `trade-offs.html`, beside the store's index."
        yield from ("", f"![Trade-offs of all studies]({PLANE}.webp)")
    yield from ("", "## The atlas", "")
    yield "A card for each claim that the studies state (`ablate atlas`), and the table of published models."
    yield from ("", "![Claims, and whether they hold](atlas.webp)")
    yield from ("", "![Published models](models.webp)")
    yield from ("", "## On a phone, a laptop and a wide screen, light and dark")
    for name, of in SCREENS.items():
        yield from ("", f"![The first screen of {of} at {', '.join(map(str, WIDTHS))} px]({name}.webp)")


if __name__ == "__main__":
    main()
