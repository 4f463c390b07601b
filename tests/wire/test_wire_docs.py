"""The page docs/wire.md and the code: every frame is there with its kind, and the example is what is sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemark.wire.codec import LAYOUTS, encode
from tidemark.wire.frames import Ping
from tidemark.wire.layouts import FrameLayout

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.frame.__name__)
def test_the_page_names_every_frame_with_its_kind_and_layout_version(layout: FrameLayout) -> None:
    kind, version = layout.key & 0xFF, layout.key >> 8
    title = rf"\*\*{layout.frame.__name__}\*\* \({kind}\)"
    ending = f", layout version {version}" if version > 1 else r"(?!, layout version)"
    assert re.search(title + ending, PAGE)


def test_the_example_on_the_page_is_what_is_sent() -> None:
    example = re.search(r"^08 00 00 00 [0-9a-f |]+$", PAGE, re.MULTILINE)
    assert example is not None
    assert b"".join(encode(Ping(7))) == bytes.fromhex(example[0].replace("|", " "))
