"""What went wrong with a request: an HTTP status, a code for programs, and a reason that says what to do."""

from __future__ import annotations

from tidemark.errors import (
    ClosedError,
    ConfigError,
    MessageError,
    NotConnectedError,
    RefusedError,
    SchemaError,
    SelectorError,
    TidemarkError,
    TimedOutError,
    TokenError,
    TopicError,
)

#: code of a refusal -> HTTP status
_OF_CODE = {
    "login": 401,
    "denied": 403,
    "unknown": 404,
    "taken": 409,
    "sequence": 409,
    "schema": 422,
    "selector": 422,
    "topic": 422,
    "token": 422,
    "limit": 429,
    "full": 507,
    "access": 503,
    "draining": 503,
}
#: error -> HTTP status and code; the first that fits counts
_OF_ERROR: tuple[tuple[type[TidemarkError], int, str], ...] = (
    (MessageError, 422, "schema"),
    (SchemaError, 422, "schema"),
    (SelectorError, 422, "selector"),
    (TopicError, 422, "topic"),
    (TokenError, 422, "token"),
    (TimedOutError, 504, "timeout"),
    (NotConnectedError, 503, "broker"),
    (ClosedError, 503, "broker"),
    (ConfigError, 500, "configuration"),
)


class ProblemError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.reason = reason

    def as_object(self) -> dict[str, dict[str, str]]:
        """Return the JSON object of the answer."""
        return {"error": {"code": self.code, "reason": self.reason}}


def problem_of(error: TidemarkError) -> ProblemError:
    """Return what an error of Tidemark is as the answer to a request."""
    if isinstance(error, RefusedError):
        return ProblemError(_OF_CODE.get(error.code, 400), error.code, error.reason)
    for kind, status, code in _OF_ERROR:
        if isinstance(error, kind):
            return ProblemError(status, code, str(error))
    return ProblemError(400, "request", str(error))
