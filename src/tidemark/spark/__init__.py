"""Spark: the second reader of the one log. Source, sink, archive, history, audit.

`history` is the entry for analysts; everything else is in the modules. It is loaded when first asked for, so
that a task of the source, say, does not load what only an archive needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.spark.history_frames.frame import history

__all__ = ["history"]


def __getattr__(name: str) -> Any:
    if name != "history":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidemark.spark.history_frames.frame import history

    return history
