"""Access: the document of users, roles and rules; what it lets somebody do; and changes, shown before."""

from __future__ import annotations

import asyncio
import re

from starlette.responses import Response

from tidemark.access.document import DOCUMENT_BYTES_MAX
from tidemark.access.rule_fit import RuleMisfit
from tidemark.admin.access_changes import misfits, plan_access, try_access
from tidemark.console.pages.site import Visit
from tidemark.console.problems import ProblemError
from tidemark.errors import TidemarkError
from tidemark.message.foreign.toml_text import read_toml
from tidemark.wire.answers import ACCESS, PROPOSE_ACCESS, TOPICS, AccessText

_VERIFIER = re.compile(r'SCRAM-SHA-256\$[^"\']*')
#: Stands in a page for what a password is checked against, which no page shows.
KEPT = "(kept)"
#: Rules that do not fit topics that a plan shows.
MISFITS_SHOWN_MAX = 20


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
    async with visit.site.connections.use(visit.caller) as client:
        topics = await client.ask(TOPICS)
    try:
        changed = plan_access(found.text, whole := with_verifiers(text, found.text))
        wrong = await asyncio.to_thread(misfits, whole, topics)
    except TidemarkError as error:
        return visit.page(
            "access_plan.html",
            422,
            text=text,
            problem=str(error),
            changes=[],
            misfits=[],
            version=found.version,
        )
    told = [RuleMisfit(each.rule, each.topic, each.reason).text for each in wrong[:MISFITS_SHOWN_MAX]]
    return visit.page(
        "access_plan.html", text=text, problem="", changes=changed, misfits=told, version=found.version
    )


async def apply_document(visit: Visit) -> Response:
    """Put another document into force."""
    form = await visit.form()
    found = await _document(visit)
    if form.get("version") != str(found.version):
        raise ProblemError(409, "version", "the document was changed meanwhile: plan the change again")
    text = with_verifiers(form.get("text", ""), found.text)
    async with visit.site.connections.use(visit.caller) as client:
        is_forced = form.get("force") == "yes"
        taken = await client.ask(PROPOSE_ACCESS, text=text, base=found.version, force=is_forced)
    return visit.go("/access", f"Version {taken.version} of the document is in force.")


def with_verifiers(text: str, before: str) -> str:
    """Return a document with the verifiers of the one before it where it says that they are kept.

    They are taken user by user, as TOML says whose they are. A document that is no TOML is returned as it is.
    ProblemError 422 if a user that was not there before has none, or if it stands where no password is.
    """
    parts = text.replace("\r\n", "\n").split(KEPT)
    marks = [f"{KEPT}{at}" for at in range(len(parts) - 1)]
    marked = "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))
    try:
        user_of = {verifier: user for user, verifier in _verifiers(marked).items()}
    except ValueError:
        return text
    old = _verifiers(before)
    kept: list[str] = []
    for mark in marks:
        user = user_of.get(mark)
        if user is None:
            raise ProblemError(422, "access", f"{KEPT} stands for the password of a user, and only there")
        if user not in old:
            raise ProblemError(
                422, "access", f"the user {user!r} had no password: `tidemark access password`"
            )
        kept.append(old[user])
    return "".join(part + verifier for part, verifier in zip(parts, [*kept, ""], strict=True))


def _verifiers(text: str) -> dict[str, str]:
    """Return what the password of each user is checked against; ValueError if it is no TOML."""
    users = read_toml(text, DOCUMENT_BYTES_MAX).get("users", {})
    tables = users.items() if isinstance(users, dict) else ()
    found = {name: table.get("password") for name, table in tables if isinstance(table, dict)}
    return {name: verifier for name, verifier in found.items() if isinstance(verifier, str)}


async def _document(visit: Visit) -> AccessText:
    async with visit.site.connections.use(visit.caller) as client:
        return await client.ask(ACCESS)
