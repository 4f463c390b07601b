"""A real browser for tests: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

from tests.waiting import PATIENCE_SECONDS

CHROMIUM = os.environ.get("TIDEMARK_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
WHY_NOT = "NO BROWSER: the console's pages were not driven; apt-get install chromium, then run this again"
#: A browser of a test calls nobody but the console.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def started_browser() -> Iterator[Browser]:
    """A browser, which several tests can share: each has a page with cookies of its own."""
    assert CHROMIUM is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browser_page(
    browser: Browser,
    *,
    is_dark: bool = False,
    width: int = 1200,
    height: int = 860,
    expects_errors: bool = False,
) -> Iterator[Page]:
    """A page of a browser as if it were fresh; what a script of it fails with is raised at the end.

    With `expects_errors` requests may fail, and only exceptions are raised.
    """
    failures: list[str] = []

    def keep(kind: str, text: str) -> None:
        if kind == "error" and not expects_errors:
            failures.append(text)

    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if is_dark else "light"
    )
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_SECONDS * 1_000)
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda said: keep(said.type, said.text))
        yield page
    finally:
        context.close()
    assert not failures, failures
