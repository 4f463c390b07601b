"""Which address shows which page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tidemark.console.pages import (
    access,
    http_page,
    login,
    overlay,
    overview,
    pipeline,
    selectors,
    subscriptions,
    tail,
    topics,
)
from tidemark.console.pages.site import HERE, Page, Site


async def _icon(request: Request) -> Response:
    """Return the icon, for pages that name none: browsers ask for it here."""
    del request
    return FileResponse(HERE / "static" / "icon.svg")


def page_routes(site: Site) -> list[BaseRoute]:
    """Return the addresses of all pages."""
    feeds = tail.Feeds()
    shown: list[tuple[str, Page]] = [
        ("/", overview.show_overview),
        ("/charts.json", overview.chart_numbers),
        ("/topics", topics.list_topics),
        ("/topics/{topic}", topics.show_topic),
        ("/why", topics.explain_match),
        ("/try", selectors.try_selector),
        ("/tail", tail.show_tail),
        ("/tail/rows", tail.stream_tail(feeds)),
        ("/subscriptions", subscriptions.list_subscriptions),
        # The name of a subscription may have slashes in it; what is longer comes first.
        ("/subscriptions/{name:path}/change", subscriptions.preview_change),
        ("/subscriptions/{name:path}", subscriptions.show_subscription),
        ("/overlay", overlay.show_overlay),
        ("/pipeline", pipeline.show_pipeline),
        ("/pipeline/reports/{name}", pipeline.show_report),
        ("/access", access.show_access),
        ("/http", http_page.show_http),
        ("/login", login.show_login),
    ]
    sent: list[tuple[str, Page]] = [
        ("/subscriptions/{name:path}/change", subscriptions.make_change),
        ("/overlay/plan", overlay.plan_topology),
        ("/overlay/apply", overlay.apply_topology),
        ("/access/plan", access.plan_document),
        ("/access/apply", access.apply_document),
        ("/login", login.log_in),
        ("/logout", login.log_out),
    ]
    return [
        *(Route(path, site.visited(page), methods=["GET"]) for path, page in shown),
        *(Route(path, site.visited(page), methods=["POST"]) for path, page in sent),
        Route("/favicon.ico", _icon, methods=["GET"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
