"""The pipeline: how far the archive is, and the engine that writes it."""

from __future__ import annotations

from starlette.responses import Response

from tidemark.console.pages.site import Visit
from tidemark.wire.answers import ARCHIVE


async def show_pipeline(visit: Visit) -> Response:
    """Show the archive, as the brokers know it and its engine reports it."""
    view = await visit.watch.view()
    async with visit.site.connections.use(visit.caller) as client:
        archives = await client.ask(ARCHIVE)
    rows = [
        (broker.name, pubend, _behind(pubend.archived, pubend.last_event))
        for broker in view.brokers.values()
        for pubend in broker.pubends
    ]
    return visit.page("pipeline.html", view=view, archives=archives, rows=rows, engines=view.engines)


def _behind(archived: int | None, last: int | None) -> float | None:
    """The seconds of events that the archive does not have yet; None without an archive."""
    if archived is None:
        return None
    return max(0.0, ((last or archived) - archived) / 1e6)
