"""AuditLog: who came, from where, how that was proved, what was refused, and what administrators changed.

What an administrator asks for is one line, and what became of it is another: what there was before and is
after, or why it was refused.

One JSON object a line, in a file of its own that is rotated by size and readable by its owner only. No secret
is ever written: no password, no proof, no token. A file that cannot be written is told in the broker's log,
and stops nothing.

Those who are refused, and those who come again and again, do not push out of the files what others did: of
what one user does, and of all that strangers do, few lines a second are written of a kind, and the next one
says how many were left out. What administrators change is always written.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from time import monotonic

from tidemark.access.principal import Principal
from tidemark.access.quota import Quota
from tidemark.broker.observer import Particulars
from tidemark.errors import WireError
from tidemark.message.generations import is_removed
from tidemark.node.clock import Clock
from tidemark.node.logs import Log
from tidemark.wire.answers import ACCESS, CONFIG, REPORT_ENGINE, RIGHTS, SNAPSHOT_END, SNAPSHOT_READ
from tidemark.wire.frames import Answer, Ask, Refused, Topic
from tidemark.wire.json_objects import read_arguments

FILE_BYTES_MAX = 64 << 20
FILES_KEPT = 8
#: Characters of one value; strangers write some of them.
VALUE_CHARACTERS_MAX = 1_000
#: Arguments of a question that are written, and characters of the name of one.
ARGUMENTS_MAX = 20
NAME_CHARACTERS_MAX = 100
#: Names that the log itself gives to values of a line: no argument of a question is written under them.
_OURS = frozenset(
    ("time", "broker", "what", "question", "who", "address", "left_out", "outcome")
) | frozenset(("before", "after", "code", "reason"))
#: What strangers cause, and what users and neighbours cause who are let in or refused. Of each kind so many
#: lines are written at once, of all strangers or of one user, and then one in so many seconds.
_OF_STRANGERS = frozenset(("login failed", "link refused"))
_OF_USERS = frozenset(("login", "login renewed", "denied", "over limit", "read", "link", "publishing waits"))
LINES_AT_ONCE = 1_000
SECONDS_A_LINE = 1.0
#: A publisher over its quota waits again and again: that is written seldom.
_SELDOM = frozenset(("publishing waits",))
SELDOM_SECONDS = 60.0
#: Requests whose refusals for a limit are not written: the limit is how fast a client may ask.
_ASKED_OFTEN = frozenset(("ask", "fetch"))
#: Users whose lines are counted; those who did something last longest ago are forgotten first.
COUNTED_MAX = 1_000
#: Questions that only administrators or the pipeline may ask, and that change nothing at the broker.
_ONLY_READ = frozenset(each.what for each in (ACCESS, CONFIG, REPORT_ENGINE, SNAPSHOT_READ, SNAPSHOT_END))
#: Of these, the questions whose answers have secrets: the verifiers of passwords.
_SECRET = frozenset((ACCESS.what,))
#: Sends the answer to a question.
Replies = Callable[[Answer | Refused], None]
log = Log("audit")


class AuditLog:
    """The audit log of one broker. Without a path it writes nothing."""

    def __init__(self, path: Path | None, broker: str, time: Clock = monotonic) -> None:
        self._path = path
        self._shares = _Shares(time)
        self._broker = broker
        self._file: int | None = None
        self._bytes = 0
        self._is_failing = False

    def write(self, what: str, **fields: object) -> None:
        """Write one line: what happened, and its particulars. Values are cut to VALUE_CHARACTERS_MAX."""
        left_out = None if self._path is None else self._shares.taken(what, fields)
        if left_out is None:
            return
        if left_out:
            fields["left_out"] = left_out
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        kept = {name: _short(value) for name, value in fields.items() if value not in (None, "")}
        line = json.dumps({"time": now, "broker": self._broker, "what": what, **kept}) + "\n"
        try:
            self._append(line.encode())
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                log.error("the audit log cannot be written", path=str(self._path), reason=str(error))
            self._is_failing = True
            self.close()

    def refused(self, principal: Principal | None, address: str, frame: Refused) -> None:
        """Write that a client may not do what it asked for, or is over a quota or another limit with it."""
        if frame.code == "denied":
            what = "denied"
        elif frame.code == "limit" and frame.what not in _ASKED_OFTEN:
            what = "over limit"
        else:
            return
        who = principal.name if principal is not None else ""
        self.write(what, who=who, address=address, request=frame.what, name=frame.name, reason=frame.reason)

    def waits(self, who: str, quota: Quota) -> None:
        """Write that a user has published more than its quota allows, and is not read from for a while."""
        stated = {"quota.publish_events": quota.publish_events, "quota.publish_bytes": quota.publish_bytes}
        names = " or ".join(name for name, most in stated.items() if most is not None)
        reason = f"it has published more than {names} of its roles allows"
        self.write("publishing waits", who=who, request="publish", reason=reason)

    def asked(self, principal: Principal | None, address: str, frame: Ask | Topic) -> None:
        """Write that somebody asks for a change, if not everybody may change that, or reads secrets."""
        if principal is not None and (is_audited(frame) or is_secret(frame)):
            told = told_of(frame) | {"who": principal.name, "address": address}
            self.write("read" if is_secret(frame) else "asked", **told)

    def answered(
        self,
        who: str,
        asked: Ask,
        before: Particulars | None = None,
        after: Particulars | None = None,
        refusal: tuple[str, str] | None = None,
    ) -> None:
        """Write what became of a change that somebody asked for.

        Of those that the archive asks for all the time only what was refused is written. Why a text was
        refused may quote it, and it may be secret: of that only the code is written.
        """
        if not who or not is_audited(asked) or (refusal is None and RIGHTS[asked.what] == "pipeline"):
            return
        code, reason = refusal or ("", "")
        told = told_of(asked) | {"who": who, "outcome": "refused" if refusal else "done"}
        told |= {"before": before, "after": after, "code": code, "reason": "" if "text" in told else reason}
        self.write("answered", **told)

    def answering(self, who: str, asked: Ask, reply: Replies) -> Replies:
        """Return what writes how a change was answered that the process makes, and answers with `reply`."""

        def answer(frame: Answer | Refused) -> None:
            self.answered(who, asked, refusal=_refusal(frame))
            reply(frame)

        return answer if who and is_audited(asked) else reply

    def _append(self, line: bytes) -> None:
        assert self._path is not None
        if self._file is not None and self._bytes + len(line) > FILE_BYTES_MAX:
            self.close()
            self._rotate(self._path)
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._bytes = os.fstat(self._file).st_size
        os.write(self._file, line)
        self._bytes += len(line)

    def _rotate(self, path: Path) -> None:
        for number in range(FILES_KEPT - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class _Shares:
    """How many lines of a kind somebody may still cause, and how many were left out since the last one."""

    def __init__(self, time: Clock) -> None:
        self._time = time
        #: kind and user, "" for all strangers -> lines that may be written, when that was counted, left out
        self._shares: OrderedDict[tuple[str, str], tuple[float, float, int]] = OrderedDict()

    def taken(self, what: str, fields: dict[str, object]) -> int | None:
        """Return how many lines were left out before this one, or None if this one is left out, too."""
        if what not in _OF_STRANGERS | _OF_USERS:
            return 0
        key = what, "" if what in _OF_STRANGERS else str(fields.get("who", ""))
        now = self._time()
        most, seconds = (1, SELDOM_SECONDS) if what in _SELDOM else (LINES_AT_ONCE, SECONDS_A_LINE)
        lines, at, left_out = self._shares.get(key, (float(most), now, 0))
        lines = min(most, lines + (now - at) / seconds)
        is_written = lines >= 1
        self._shares[key] = (lines - 1, now, 0) if is_written else (lines, now, left_out + 1)
        self._shares.move_to_end(key)
        while len(self._shares) > COUNTED_MAX:
            self._shares.popitem(last=False)
        return left_out if is_written else None


def _short(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in value.items()}
    return value[:VALUE_CHARACTERS_MAX] if isinstance(value, str) else value


def _refusal(frame: Answer | Refused) -> tuple[str, str] | None:
    return (frame.code, frame.reason) if isinstance(frame, Refused) else None


def is_secret(frame: Ask | Topic) -> bool:
    """Return whether a request reads secrets, and changes nothing."""
    return isinstance(frame, Ask) and frame.what in _SECRET


def is_audited(frame: Ask | Topic) -> bool:
    """Return whether a request changes, or takes a copy of, what not everybody may."""
    if isinstance(frame, Topic):
        return is_removed(frame.generation)
    return frame.what not in _ONLY_READ and RIGHTS.get(frame.what) in ("administer", "pipeline")


def told_of(frame: Ask | Topic) -> dict[str, object]:
    """Return what is asked for the log; in place of a text, which may be secret, its digest."""
    if isinstance(frame, Topic):
        return {"question": "remove topic", "topic": frame.topic}
    return {"question": frame.what, **_arguments(frame)}


def _arguments(ask: Ask) -> dict[str, object]:
    try:
        given = read_arguments(ask.arguments)
    except WireError:
        return {}
    told = {name: value for name, value in given.items() if isinstance(value, str | int | float | bool)}
    if "text" in told:
        told["text"] = sha256(str(told["text"]).encode(errors="replace")).hexdigest()[:16]
    kept = [name for name in told if name not in _OURS and len(name) <= NAME_CHARACTERS_MAX]
    return {name: _short(told[name]) for name in kept[:ARGUMENTS_MAX]}
