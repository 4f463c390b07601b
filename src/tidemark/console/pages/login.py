"""Logging in and out: the broker decides, the console only brings it what was typed."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from tidemark.console.callers import ANYBODY, Caller
from tidemark.console.pages.site import Visit
from tidemark.errors import RefusedError

#: Seconds that a wrong login takes, and how many logins are tried at the same time.
WRONG_SECONDS = 1.0
LOGINS_AT_A_TIME = 8
_TRYING = asyncio.Semaphore(LOGINS_AT_A_TIME)


async def show_login(visit: Visit) -> Response:
    """Show the form."""
    return visit.page("login.html", problem="", wanted=visit.query("next", "/"))


async def log_in(visit: Visit) -> Response:
    """Log in with a user's name and password, or with a token."""
    form = await visit.form()
    caller = Caller(form.get("user", ""), form.get("password", ""), form.get("token", "").strip())
    wanted = form.get("next", "/")
    if caller.is_anonymous:
        problem = "Give a user and a password, or a token."
        return visit.page("login.html", 422, problem=problem, wanted=wanted)
    async with _TRYING:
        try:
            async with visit.site.connections.use(caller):
                pass
        except RefusedError as error:
            if error.code != "login":
                raise
            await asyncio.sleep(WRONG_SECONDS)
            return visit.page("login.html", 401, problem=error.reason, wanted=wanted)
    return visit.site.renew(visit, caller, wanted)


async def log_out(visit: Visit) -> Response:
    """End the session."""
    await visit.form()
    return visit.site.renew(visit, ANYBODY)
