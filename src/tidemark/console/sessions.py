"""Sessions of browsers: a cookie stands for a caller, and every form has a token of its session."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_urlsafe

from tidemark.console.callers import ANYBODY, Caller
from tidemark.console.options import SESSION_IDLE_SECONDS, SESSION_SECONDS, SESSIONS_MAX
from tidemark.console.problems import ProblemError

COOKIE = "tidemark_session"


@dataclass(slots=True)
class Session:
    """What the console knows of one browser."""

    caller: Caller
    made: float
    used: float
    #: what the next page shows: the change that was just made
    told: str = ""
    #: the token of its forms
    form_token: str = field(default_factory=lambda: token_urlsafe(24), repr=False)

    def check_form(self, given: str) -> None:
        """Raise ProblemError 403 unless a form has the token of this session."""
        if not hmac.compare_digest(given.encode(), self.form_token.encode()):
            raise ProblemError(
                403, "form", "this form is not of this session, or the session is over: load the page again"
            )


class Sessions:
    """All sessions, in memory: they end with the console."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None if there is none, or it is over."""
        session = self._sessions.get(cookie or "")
        if session is None:
            return None
        if self._is_over(session):
            self.end(cookie)
            return None
        session.used = self._clock()
        return session

    def goes_on(self, cookie: str | None) -> Callable[[], bool]:
        """Return what says whether the session of a cookie still goes on, for a stream that is open in it.

        Asking counts as a request: who follows a stream is there. Without a session there is nothing to end.
        """
        session = self.find(cookie)
        return lambda: session is None or self.find(cookie) is session

    def forget_ended(self) -> None:
        """Forget the sessions that are over, and the passwords in them."""
        for cookie, session in list(self._sessions.items()):
            if self._is_over(session):
                self.end(cookie)

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used > SESSION_IDLE_SECONDS or now - session.made > SESSION_SECONDS

    def begin(self, caller: Caller = ANYBODY) -> tuple[str, Session]:
        """Return the cookie of a new session, and the session."""
        now = self._clock()
        if len(self._sessions) >= SESSIONS_MAX:
            # Requests without a cookie make sessions for nothing: they push out nobody who has logged in.
            del self._sessions[min(self._sessions, key=self._order)]
        cookie, session = token_urlsafe(32), Session(caller, now, now)
        self._sessions[cookie] = session
        return cookie, session

    def _order(self, cookie: str) -> tuple[bool, float]:
        session = self._sessions[cookie]
        return not session.caller.is_anonymous, session.used

    def end(self, cookie: str | None) -> None:
        """Forget a session."""
        self._sessions.pop(cookie or "", None)
