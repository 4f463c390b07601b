"""TopicSelector: what somebody wants, as a topic pattern and the text of a selector."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicSelector:
    """Events of topics that match `pattern` and satisfy `selector`; an empty selector is always satisfied.

    Neither text has been checked: whoever reads one parses it.
    """

    pattern: str
    selector: str
