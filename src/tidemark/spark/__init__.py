"""Spark: the second reader of the one log. Source, sink, archive, history, audit.

`history` is the entry for analysts; everything else is in the modules. `history` is imported when a program
first uses it, so that a task of the source, say, does not load what only an archive needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.spark.history_frames.frame import history

__all__ = ["history"]

# A module with a __getattr__ has every attribute in the eyes of a type checker: a typo would pass unnoticed.
if not TYPE_CHECKING:

    def __getattr__(name):
        """Import and return `history`; AttributeError for any other name."""
        if name != "history":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from tidemark.spark.history_frames.frame import history

        return history
