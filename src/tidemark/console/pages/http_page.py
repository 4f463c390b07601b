"""The page of the HTTP door: what its OpenAPI document says, for people."""

from __future__ import annotations

from starlette.responses import Response

from tidemark.console.door.openapi import openapi_document
from tidemark.console.pages.site import Visit


async def show_http(visit: Visit) -> Response:
    """Show every operation of the HTTP door, with its parameters and answers."""
    document = openapi_document()
    operations = [
        (method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    base = str(visit.request.base_url).rstrip("/")
    return visit.page("http.html", operations=operations, base=base)
