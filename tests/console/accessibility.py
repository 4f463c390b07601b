"""What is wrong with a page for somebody who cannot see it well or has no mouse, as a browser finds it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

#: How much text must differ from what is behind it (WCAG 2.2, 1.4.3); large text is not let off.
CONTRAST_MIN = 4.5
HERE = Path(__file__).parent


def problems_of(page: Page) -> list[str]:
    """Return what is wrong with a page as it is shown now; [] if nothing is."""
    found: list[str] = page.evaluate((HERE / "accessibility.js").read_text(), CONTRAST_MIN)
    page.keyboard.press("Tab")
    unseen: list[str] = page.evaluate((HERE / "focus.js").read_text())
    return found + [f"the focus is not seen: {each}" for each in unseen]
