"""Access: the document of users, roles and rules; what it lets somebody do; and changes, shown before."""

from __future__ import annotations

import re

from starlette.responses import Response

from tidemark.admin.access_changes import plan_access, try_access
from tidemark.console.pages.site import Visit
from tidemark.console.problems import ProblemError
from tidemark.errors import TidemarkError
from tidemark.wire.answers import ACCESS, PROPOSE_ACCESS, AccessText

_VERIFIER = re.compile(r'SCRAM-SHA-256\$[^"\']*')
#: Stands in a page for what a password is checked against, which no page shows.
KEPT = "(kept)"


async def show_access(visit: Visit) -> Response:
    """Show the document without verifiers, and what it lets a user do with a topic."""
    found = await _document(visit)
    user, topic, where = visit.query("user"), visit.query("topic"), visit.query("where")
    answer, problem = None, ""
    if user and topic:
        try:
            answer = try_access(found.text, user, topic, where)
        except TidemarkError as error:
            problem = str(error)
    return visit.page(
        "access.html",
        mode=found.mode,
        version=found.version,
        text=_VERIFIER.sub(KEPT, found.text),
        user=user,
        topic=topic,
        where=where,
        answer=answer,
        problem=problem,
    )


async def plan_document(visit: Visit) -> Response:
    """Show what another document would change."""
    form = await visit.form()
    found = await _document(visit)
    text = form.get("text", "")
    try:
        changed = plan_access(found.text, with_verifiers(text, found.text))
    except TidemarkError as error:
        return visit.page(
            "access_plan.html", 422, text=text, problem=str(error), changes=[], version=found.version
        )
    return visit.page("access_plan.html", text=text, problem="", changes=changed, version=found.version)


async def apply_document(visit: Visit) -> Response:
    """Put another document into force."""
    form = await visit.form()
    found = await _document(visit)
    if form.get("version") != str(found.version):
        raise ProblemError(409, "version", "the document was changed meanwhile: plan the change again")
    text = with_verifiers(form.get("text", ""), found.text)
    async with visit.site.connections.use(visit.caller) as client:
        taken = await client.ask(PROPOSE_ACCESS, text=text, base=found.version)
    return visit.go("/access", f"Version {taken.version} of the document is in force.")


def with_verifiers(text: str, before: str) -> str:
    """Return a document with the verifiers of the one before it where it says that they are kept.

    They are taken user by user. ProblemError 422 if a user that was not there before has none.
    """
    old = _verifiers(before)
    lines = []
    user = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        user = _user_of(line) or user
        if KEPT in line:
            if user not in old:
                raise ProblemError(
                    422, "access", f"the user {user!r} had no password: `tidemark access password`"
                )
            line = line.replace(KEPT, old[user])
        lines.append(line)
    return "\n".join(lines)


def _verifiers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    user = ""
    for line in text.split("\n"):
        user = _user_of(line) or user
        verifier = _VERIFIER.search(line)
        if verifier is not None:
            found[user] = verifier.group()
    return found


def _user_of(line: str) -> str:
    """The user whose table begins on this line, or who has the line for itself; "" if neither."""
    table = re.match(r"""\s*\[users\.["']?([^"'\]]+)["']?\]""", line)
    own = re.match(r"""\s*(?:users\.)?["']?([\w.@-]+)["']?\s*=\s*\{""", line)
    found = table or own
    return found.group(1) if found is not None else ""


async def _document(visit: Visit) -> AccessText:
    async with visit.site.connections.use(visit.caller) as client:
        return await client.ask(ACCESS)
