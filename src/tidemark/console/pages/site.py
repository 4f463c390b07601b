"""What all pages share: who looks, the templates, forms with their token, and how errors are shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tidemark import __version__
from tidemark.admin.numbers import NOTHING, show_bytes, show_seconds
from tidemark.console.callers import Caller, Connections
from tidemark.console.door.requests import BodyMemory
from tidemark.console.guard import is_loopback
from tidemark.console.options import ConsoleOptions
from tidemark.console.problems import ProblemError, problem_of
from tidemark.console.sessions import COOKIE, Session, Sessions
from tidemark.console.watch import Watch, Watches
from tidemark.errors import TidemarkError
from tidemark.message.visible import visible, visible_json

HERE = Path(__file__).parent.parent
FORM_BYTES_MAX = 1 << 20
FORM_FIELDS_MAX = 64
#: The first tick after the year 9999, which is the last one that Python knows.
_CALENDAR_END = 253_402_300_800_000_000
#: title and path of each page, in the order of the menu
MENU = (
    ("Overview", "/"),
    ("Topics", "/topics"),
    ("Tail", "/tail"),
    ("Selectors", "/try"),
    ("Subscriptions", "/subscriptions"),
    ("Overlay", "/overlay"),
    ("Pipeline", "/pipeline"),
    ("Access", "/access"),
    ("HTTP", "/http"),
)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a browser."""

    request: Request
    cookie: str
    session: Session
    site: Site

    @property
    def caller(self) -> Caller:
        """The user, or the bearer of a token, that this visit comes from."""
        return self.session.caller

    @property
    def watch(self) -> Watch:
        """What the one who looks may see of the overlay."""
        return self.site.watches.of(self.caller)

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        return self.request.query_params.get(name, default)

    async def form(self) -> dict[str, str]:
        """Return the fields of a form that was sent; ProblemError 403 if it is not of this session."""
        async with self.site.memory.read(self.request, FORM_BYTES_MAX) as body:
            text = body.decode(errors="replace")
            try:
                fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))
            except ValueError:
                raise ProblemError(413, "limit", f"a form has at most {FORM_FIELDS_MAX} fields") from None
        self.session.check_form(fields.get("form_token", ""))
        return fields

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        return self.site.page(self, template, status, **values)

    def go(self, path: str, told: str = "") -> Response:
        """Send the browser to another page, which shows what was done."""
        self.session.told = told
        return RedirectResponse(path, 303)


Page = Callable[[Visit], Awaitable[Response]]


class Site:
    """The pages of one console."""

    def __init__(
        self,
        options: ConsoleOptions,
        connections: Connections,
        sessions: Sessions,
        watches: Watches,
        memory: BodyMemory,
    ) -> None:
        """`memory` is shared with the door: what all bodies of requests have together."""
        self.memory = memory
        self.options = options
        self.connections = connections
        self.sessions = sessions
        self.watches = watches
        self._wants_login = not is_loopback(options.host)
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=select_autoescape(("html", "svg")),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "bytes": show_bytes,
            "seconds": show_seconds,
            "count": lambda number: NOTHING if number is None else f"{number:,.0f}",
            "counted": counted,
            "rate": _show_rate,
            "bound": _show_bound,
            "tick": _show_tick,
            "visible": lambda text: visible(str(text)),
            "path": lambda text: quote(str(text), safe=""),
            "json": lambda value: visible_json(value, default=str),
        }

    def visited(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page: it knows its session, and shows what goes wrong as a page."""

        async def endpoint(request: Request) -> Response:
            cookie = request.cookies.get(COOKIE)
            session = self.sessions.find(cookie)
            if session is None or cookie is None:
                cookie, session = self.sessions.begin()
            visit = Visit(request, cookie, session, self)
            is_login = request.url.path == "/login"
            try:
                if self._wants_login and session.caller.is_anonymous and not is_login:
                    raise ProblemError(401, "login", "log in first")
                response = await page(visit)
            except (TidemarkError, ProblemError) as error:
                response = self._failed(visit, error)
            if session is self.sessions.find(cookie):
                self._set_cookie(response, cookie)
            return response

        return endpoint

    async def failed(self, request: Request, problem: ProblemError) -> Response:
        """Return the page that tells what is wrong with a request that no page answers."""

        async def page(visit: Visit) -> Response:
            del visit
            raise problem

        return await self.visited(page)(request)

    def renew(self, visit: Visit, caller: Caller, to: str = "/") -> Response:
        """Begin a new session for a caller that has just logged in or out, and go to a page of this site."""
        self.sessions.end(visit.cookie)
        cookie, _ = self.sessions.begin(caller)
        response = RedirectResponse(to if _is_ours(to) else "/", 303)
        self._set_cookie(response, cookie)
        return response

    def page(self, visit: Visit, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page made of a template."""
        path = visit.request.url.path
        told, visit.session.told = visit.session.told, ""
        common = {
            "menu": MENU,
            "path": path,
            "here": _menu_entry(path),
            "logged_in_as": visit.caller.user or ("a bearer of a token" if visit.caller.token else ""),
            "form_token": visit.session.form_token,
            "program_version": __version__,
            "told": told,
        }
        text = self._templates.get_template(template).render(**common, **values)
        return HTMLResponse(text, status, {"Cache-Control": "no-store"})

    def fragment(self, template: str, **values: Any) -> str:
        """Return a part of a page made of a template."""
        return self._templates.get_template(template).render(**values)

    def _failed(self, visit: Visit, error: TidemarkError | ProblemError) -> Response:
        problem = error if isinstance(error, ProblemError) else problem_of(error)
        if problem.status == 401 and visit.request.url.path != "/login":
            return _to_login(visit.request)
        return self.page(visit, "error.html", problem.status, problem=problem)

    def _set_cookie(self, response: Response, cookie: str) -> None:
        response.set_cookie(
            COOKIE, cookie, httponly=True, samesite="strict", secure=self.options.is_tls, path="/"
        )


def _menu_entry(path: str) -> str:
    """Return the path of the menu's entry that a page belongs to."""
    path = "/topics" if path == "/why" else path
    return next((at for _, at in reversed(MENU) if path == at or path.startswith(at + "/")), "/")


def _to_login(request: Request) -> Response:
    """Send a browser to the login, from where it comes back to the page that it wanted.

    A page that refreshes a part of itself is told so in a header: it would put the other page into that part.
    """
    wanted = request.headers.get("hx-current-url") or str(request.url) if request.method == "GET" else ""
    path = wanted.partition("://")[2].partition("/")[2]
    login = f"/login?next=/{quote(path, safe='')}" if path else "/login"
    if "hx-request" in request.headers:
        return Response("", 401, {"HX-Redirect": login})
    return RedirectResponse(login, 303)


def _is_ours(path: str) -> bool:
    """Whether an address is a path of this site; a browser takes // and /\\ for another site."""
    return path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()


def counted(number: int, noun: str) -> str:
    """Return how many of something there are."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _show_rate(number: float | None) -> str:
    if number is None:
        return NOTHING
    return f"{number:,.0f}/s" if number >= 10 or number == int(number) else f"{number:,.1f}/s"


def _show_bound(seconds: float) -> str:
    """A bound of a histogram, which the value is at most."""
    return "over 5 min" if seconds == inf else f"≤ {show_seconds(seconds)}"


def _show_tick(tick: int | None) -> str:
    if tick is None or tick <= 0:
        return NOTHING
    if tick >= _CALENDAR_END:
        return str(tick)
    return datetime.fromtimestamp(tick / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
