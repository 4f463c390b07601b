"""Secured: who there is at a broker with accounts that is fuzzed, and how each proves that.

The well-behaved clients may do everything. Of the hostile ones some never say who they are, some have no
rights, and some have few: what each of them hears is held against that. Some of the hostile neighbours have
the key of the overlay, others speak before they have proved anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tidemark.client.connecting.credentials import Credentials
from tidemark.lab.fuzz.frame_maker import DECLARED
from tidemark.node.security.link_proof import LinkKey, LinkProving
from tidemark.node.security.login import make_verifier
from tidemark.wire.frames import (
    Answer,
    Deliver,
    Fetched,
    Frame,
    Hello,
    Interest,
    Knowledge,
    Overlay,
    Published,
    Recall,
    Subscribed,
    Topic,
    Welcome,
)
from tidemark.wire.security.frames import Access, Challenge, LinkProof, Login

GOOD, LITTLE, NOBODY = "good", "little", "nobody"
PASSWORD = "a password for the fuzzer"
KEY = "0123456789abcdef0123456789abcdef"
#: From where hostile clients come: their failures must not let well-behaved ones wait.
HOSTILE_HOST = "127.0.0.2"
#: What a user with few rights does not see of the topics that hostile publishers declare.
HIDDEN = "text"
_DOCUMENT = """
[roles.everything]
subscribe = [">"]
publish = [">"]
declare = [">"]
durable = ["*"]
publisher = ["*"]
monitor = true
administer = true
[roles.few]
subscribe = ["evil.>"]
publish = ["evil.>"]
declare = ["evil.>"]
durable = ["evil-*"]
publisher = ["evil-*"]
read."evil.>" = "n < 1000000 OR n IS NULL"
write."evil.a" = "n <= 5"
hide."evil.declared.>" = ["{hidden}"]
quota = {{ subscriptions = 50, connections = 20, publish_events = 3000 }}
{more}
[roles.none]
[users.{good}]
roles = ["everything"]
password = "{verifier}"
[users.{little}]
roles = ["few"]
password = "{verifier}"
[users.{nobody}]
roles = ["none"]
password = "{verifier}"
"""
#: What is changed in the document and back again while the fuzzer runs.
CHANGES = ("", 'deny.subscribe = ["evil.b"]', 'restrict."evil.a" = "n > 1"')
_WITHOUT_LOGIN = (
    Access, Answer, Deliver, Fetched, Interest, Knowledge, Overlay, Published, Recall, Subscribed, Topic,
    Welcome,
)  # fmt: skip
_WITHOUT_RIGHTS = (Deliver, Fetched, Published, Recall, Subscribed, Topic)
_WHOLE = frozenset(schema.fingerprint for schema in DECLARED if f"{HIDDEN}:" in schema.text)

#: What is wrong with a frame that somebody heard; "" if nothing is.
Judge = Callable[[Frame], str]


class Proving(Protocol):
    """One side's part in proving who it is, on one connection."""

    def answer(self, frame: Frame) -> tuple[Frame, ...]:
        """Return what to say to a frame of the broker; nothing if it asks for no proof."""


class UserProof:
    """A client logs in with a password."""

    def __init__(self, user: str) -> None:
        self._dialog = Credentials(user, PASSWORD).dialog()

    def answer(self, frame: Frame) -> tuple[Frame, ...]:
        """Return the next proof."""
        proof = self._dialog.answer(frame) if isinstance(frame, Login) else None
        return () if proof is None else (proof,)


class NeighbourProof:
    """A neighbour that calls proves that it has the key of the overlay."""

    def __init__(self, name: str, broker: str) -> None:
        self._names = name, broker
        self._proving = LinkProving(LinkKey(KEY.encode()), is_caller=True)

    def answer(self, frame: Frame) -> tuple[Frame, ...]:
        """Return a challenge of its own, and the proof."""
        if not isinstance(frame, Challenge):
            return ()
        self._proving.challenged(frame.nonce)
        return Challenge(self._proving.nonce), LinkProof(self._proving.proof(*self._names))


class TargetFiles:
    """The files of the secured broker that is fuzzed, in a directory."""

    def __init__(self, directory: Path) -> None:
        self._verifier = make_verifier(PASSWORD).text
        self._access, self._key = directory / "access.toml", directory / "overlay.key"
        self._password = directory / "password"
        self._access.write_text(self.document())
        self._key.write_text(KEY)
        self._password.write_text(PASSWORD)

    def document(self, more: str = "") -> str:
        """Return the access document, with more rules for the user with few rights."""
        return _DOCUMENT.format(
            hidden=HIDDEN, more=more, good=GOOD, little=LITTLE, nobody=NOBODY, verifier=self._verifier
        )

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the broker."""
        return {
            "security.mode": "accounts",
            "security.access": str(self._access),
            "security.overlay_key": str(self._key),
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which well-behaved clients log in."""
        return {"TIDEMARK_USER": GOOD, "TIDEMARK_PASSWORD_FILE": str(self._password)}


def judge_stranger(frame: Frame) -> str:
    """Judge what somebody hears who has not said who it is."""
    is_wrong = isinstance(frame, (*_WITHOUT_LOGIN, Hello))
    return f"somebody who has not logged in hears {type(frame).__name__}" if is_wrong else ""


def judge_neighbour_without_proof(frame: Frame) -> str:
    """Judge what a neighbour hears that has not proved its name; the broker may say its own."""
    is_wrong = isinstance(frame, _WITHOUT_LOGIN)
    return f"a neighbour without a proof hears {type(frame).__name__}" if is_wrong else ""


def judge_nobody(frame: Frame) -> str:
    """Judge what a user without rights hears."""
    return f"a user without rights hears {frame!r:.200}" if isinstance(frame, _WITHOUT_RIGHTS) else ""


def judge_little(frame: Frame) -> str:
    """Judge what a user with few rights hears: of its own topics only, and without what is hidden.

    The dictionary of a batch tells of topics too, whether or not it has events of them.
    """
    batch: Any = frame.batch if isinstance(frame, Deliver | Fetched) else None
    if batch is None:
        return ""
    for topic, fingerprint in batch.shapes:
        if not topic.startswith("evil."):
            return f"a user hears of {topic!r}, which it may not read"
        if topic.startswith("evil.declared.") and fingerprint in _WHOLE:
            return f"a user is shown the field {HIDDEN!r} of {topic!r}, which is hidden"
    return ""
