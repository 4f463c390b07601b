"""The overview: rates, lag, what is held and why, and alarms; and the numbers of its charts."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from tidemark.console.pages.site import Visit

#: Rows of the tables on the overview.
ROWS_MAX = 8
#: words of an alarm -> what to do about it; the first that fits counts
_ADVICE = (
    ("no link", "Look whether that broker runs and can be reached: `tidemark topology show`."),
    (
        "does not answer",
        "Look whether it runs, and at its log; its publishers can use other brokers meanwhile.",
    ),
    ("rule of access", "Change those rules, or the schema: until then nobody sees these events."),
    ("archive", "Look at the pipeline page, and at the archive's own log."),
    (
        "not cached",
        "Nothing is lost: history is read from its own broker again. Look at the disk, then start it anew.",
    ),
    ("room", "Free space, or let subscribers that hold the log go: see below who holds what."),
    ("space", "Free space, or let subscribers that hold the log go: see below who holds what."),
    ("full", "Free space, or let subscribers that hold the log go: see below who holds what."),
    ("damaged", 'Read docs/operations.md, "Damage": what is gone is told to subscribers as gaps.'),
    ("lost", 'Read docs/operations.md, "Damage": what is gone is told to subscribers as gaps.'),
    ("disk", "Look at the disk of its machine: what is acknowledged is safe only while the disk works."),
)


async def show_overview(visit: Visit) -> Response:
    """Show how the overlay is."""
    view = await visit.watch.view()
    return visit.page(
        "overview.html",
        view=view,
        alarms=[(broker, text, advice_for(text)) for broker, text in view.alarms],
        holders=view.holders()[:ROWS_MAX],
        lags=[each for each in view.lags if each.owed_events][:ROWS_MAX],
    )


async def chart_numbers(visit: Visit) -> Response:
    """Return the samples of the charts, a list for each line."""
    await visit.watch.view()
    samples = list(visit.watch.samples)
    return JSONResponse(
        {
            "at": [each.at for each in samples],
            "published": [each.published for each in samples],
            "delivered": [each.delivered for each in samples],
            "lag": [each.lag_seconds for each in samples],
            "held": [each.held_bytes for each in samples],
        }
    )


def advice_for(text: str) -> str:
    """Return what to do about an alarm."""
    return next((advice for word, advice in _ADVICE if word in text), "See docs/operations.md.")
