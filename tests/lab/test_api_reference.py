"""The API reference is what the docstrings say today."""

from __future__ import annotations

import builtins
import collections.abc
import pathlib
import re
import typing
from pathlib import Path

import numpy.typing

import tidemark
from tidemark.lab.api_reference import COMMAND, PAGE, render

#: Where names of signatures may come from, besides `tidemark`, without a module in front of them.
FOREIGN = (builtins, collections.abc, pathlib, typing, numpy.typing)
#: What stands for a type that the caller chooses.
TYPE_VARIABLES = {"Answered", "Into", "ItemT"}
ROOT = Path(__file__).parent.parent.parent


def test_the_api_reference_is_not_stale() -> None:
    stale = f"{PAGE} is not what the docstrings say: run `{COMMAND}` and commit the page"
    assert (ROOT / PAGE).read_text() == render(), stale


def test_the_api_reference_has_every_public_name() -> None:
    page = render()
    missing = [
        name
        for name in tidemark.__all__
        if f"### {name}\n" not in page and f"| `{name}` |" not in page and f"## tidemark.{name}\n" not in page
    ]
    # The errors module is a table of the page.
    assert missing == ["errors"]


def test_every_type_in_a_signature_of_the_package_is_exported() -> None:
    section = render().partition("\n## tidemark\n")[2].partition("\n## ")[0]
    signatures = "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
    named = set(re.findall(r"(?<![\w.'])[A-Z]\w*[a-z]\w*", signatures)) - TYPE_VARIABLES
    assert len(named) > 20
    missing = {name for name in named if not any(hasattr(each, name) for each in (tidemark, *FOREIGN))}
    assert not missing
