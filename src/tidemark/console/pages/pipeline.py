"""The pipeline: how far the archive is, the engine that writes it, and the last reports and audits."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from tidemark.console.pages.site import Visit
from tidemark.console.problems import ProblemError
from tidemark.console.reports import list_reports, read_report
from tidemark.wire.answers import ARCHIVE

REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


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
    directory = visit.site.options.reports
    reports = [] if directory is None else await asyncio.to_thread(list_reports, directory)
    return visit.page(
        "pipeline.html",
        view=view,
        archives=archives,
        rows=rows,
        engines=view.engines,
        reports=reports,
        has_reports=directory is not None,
    )


async def show_report(visit: Visit) -> Response:
    """Show one page of a report or audit, to whoever may monitor; it can run and load nothing."""
    await visit.watch.view()
    directory, name = visit.site.options.reports, visit.request.path_params["name"]
    found = None if directory is None else await asyncio.to_thread(read_report, directory, name)
    if found is None:
        raise ProblemError(404, "unknown", f"there is no report {name!r}")
    return Response(found, media_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})


def _behind(archived: int | None, last: int | None) -> float | None:
    """The seconds of events that the archive does not have yet; None without an archive."""
    if archived is None:
        return None
    return max(0.0, ((last or archived) - archived) / 1e6)
