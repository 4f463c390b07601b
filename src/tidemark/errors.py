"""Every exception Tidemark raises on purpose, in one tree.

TidemarkError                    reason
├── SchemaError                  a schema, or a change to one, is wrong
│   ├── SchemaSyntaxError        its text cannot be read: line, column
│   └── IncompatibleSchemaError  old and new readers could not both understand it: path
├── MessageError                 a value and its bytes do not fit together: path
│   ├── EncodeError              the value does not fit its schema
│   └── DecodeError              the bytes are not a message (or batch) of the schema
├── SelectorError                a selector is refused: position, text
│   ├── SelectorSyntaxError      it is not in the grammar
│   ├── SelectorTypeError        a field is not there, or two types can never compare
│   └── SelectorLimitError       it is longer, or deeper, than the limits allow
├── TopicError                   a topic name or topic pattern is malformed: topic
├── TokenError                   a checkpoint token was cut, altered, or is not one: text
├── TranslationError             a condition has no exact equal in the other language
├── EventsLostError              events are gone and the reader wants no gaps: pubend, base, upto
│   └── GapError                 a subscription has a gap here; the loop can go on behind it: cause
├── WireError                    bytes from the other side are not of this protocol
│   └── VersionError             the two sides have no version of the protocol in common
├── FrameError                   a frame cannot be handled, and nothing was changed by it
├── NeighbourError               a neighbour says what its place in the overlay does not allow
├── AccessError                  a name, a rule or an access document is refused
│   ├── StaleAccessError         a change is of a document that is not in force: expected, actual
│   └── RuleMisfitError          a new rule is true for no event of a topic that exists
├── ConfigError                  a configuration is refused: key, source
│   └── StaleTopologyError       a change is of a topology that is not in force: expected, actual
├── OverlayChangeError           a change to a running overlay did not come about: broker
├── BackupError                  a backup was not made, or cannot be put back
├── ClientError                  what a client asked for did not happen
│   ├── NotConnectedError        no broker can be reached
│   ├── TimedOutError            no answer in time; whether it happened is not known
│   ├── ClosedError              the connection, subscription or client was closed
│   ├── RefusedError             the broker said no: what, name, code
│   ├── NotSubscribedError       a queue is not subscribed to the topic: name, topic
│   └── EmptyError               a queue has no message of the topic: topic
└── StorageError                 the disk refused, or holds what cannot be used: path
    ├── DiskFullError            no space: nothing was written, try again when there is some
    ├── DiskFailedError          a write or sync failed: nothing more is written by this process
    ├── DirectoryLockedError     another process uses the directory: holder
    ├── StoreAwayError           an object store does not answer: try again when it has returned
    ├── FencedError              another process has become the writer of an archive
    ├── UnknownFormatError       the files are of another program, volume or version
    └── DamagedError             bytes that were written cannot be read back: offset

After a colon stand the fields that an error has beside those of the errors above it. The text of an error, as
`str(error)` gives it, says where something is wrong, what is wrong, and what to do next; `reason` is the same
without the place. Programs decide by the class and the fields of an error, and never by its text.
"""

from __future__ import annotations


class TidemarkError(Exception):
    """The root of all errors: catching it catches everything that Tidemark reports."""

    def __init__(self, text: str = "", *, reason: str | None = None) -> None:
        super().__init__(text)
        #: what is wrong and what to do, without the place that the text begins with
        self.reason = text if reason is None else reason


class SchemaError(TidemarkError):
    """A schema, or a change to a schema, is wrong."""


class SchemaSyntaxError(SchemaError):
    """The text of a schema cannot be read at this line and column, which count from 1."""

    def __init__(self, reason: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}", reason=reason)
        self.line = line
        self.column = column


class IncompatibleSchemaError(SchemaError):
    """Readers of the old version of a schema would misread the new one, or the reverse, at a field's path."""

    def __init__(self, reason: str, *, path: str) -> None:
        super().__init__(f"{path or 'the whole schema'}: {reason}", reason=reason)
        self.path = path


class MessageError(TidemarkError):
    """A value and its bytes do not fit together at a field's path, which is empty for the whole value."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason, reason=reason)
        self.path = path


class EncodeError(MessageError):
    """The value does not fit its schema; nothing was encoded."""


class DecodeError(MessageError):
    """The bytes are not a message, or batch, of the schema they claim."""


class SelectorError(TidemarkError):
    """A selector is refused. `position` counts characters from 0."""

    def __init__(self, reason: str, *, position: int, text: str = "") -> None:
        pointed = f"{reason} (at character {position + 1})" + _pointer(text, position)
        super().__init__(pointed, reason=reason)
        self.position = position
        self.text = text


class SelectorSyntaxError(SelectorError):
    """The text is not in the selector grammar."""


class SelectorTypeError(SelectorError):
    """A field is not in the schema, or two types can never compare."""


class SelectorLimitError(SelectorError):
    """The selector is longer, or deeper, than the limits allow."""


class TopicError(TidemarkError):
    """A topic name or topic pattern is malformed."""

    def __init__(self, reason: str, *, topic: str) -> None:
        super().__init__(f"{topic!r}: {reason}", reason=reason)
        self.topic = topic


class TokenError(TidemarkError):
    """A checkpoint token was cut, altered, or is not one; no position was guessed from it."""

    def __init__(self, reason: str, *, text: str) -> None:
        shown = text if len(text) <= 60 else text[:57] + "..."
        super().__init__(f"{shown!r}: {reason}", reason=reason)
        self.text = text


class TranslationError(TidemarkError):
    """A condition has no exact equal in the other language; nothing was approximated."""


class EventsLostError(TidemarkError):
    """The events in `(base, upto]` of a pubend are gone, and the reader does not want to go on without."""

    def __init__(self, reason: str, *, pubend: str, base: int, upto: int) -> None:
        text = f"the events in ({base}, {upto}] of the pubend {pubend!r} are gone: {reason}"
        super().__init__(text, reason=reason)
        self.pubend = pubend
        self.base = base
        self.upto = upto


class GapError(EventsLostError):
    """A subscription has a gap: what there was in `(base, upto]` of a pubend will not be delivered.

    `cause` is the `reason` of the Gap: "released", "reconnected", "not kept" or "damaged". Iterating over the
    same subscription again goes on behind the gap; with `subscribe(..., gaps=True)` gaps come as items.
    """

    def __init__(self, cause: str, *, pubend: str, base: int, upto: int) -> None:
        advice = "iterate again to go on behind the gap, or subscribe with gaps=True to get gaps as items"
        super().__init__(f"{cause}; {advice}", pubend=pubend, base=base, upto=upto)
        self.cause = cause


class WireError(TidemarkError):
    """Bytes from the other side are not of this protocol; after a broken frame the connection is useless."""


class VersionError(WireError):
    """The two sides have no version of the protocol in common: update the older one."""


class FrameError(TidemarkError):
    """A frame cannot be handled. It was only looked at: the broker is as it was before."""


class NeighbourError(TidemarkError):
    """A neighbour says what its place in the overlay does not allow: look at what runs under its name."""


class AccessError(TidemarkError):
    """A user's name, a rule of access or a whole access document is refused."""


class StaleAccessError(AccessError):
    """A change was made of version `expected` of the access document, and version `actual` is in force."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(
            f"the document has version {actual} by now, not {expected}: look at it and plan again"
        )
        self.expected = expected
        self.actual = actual


class RuleMisfitError(AccessError):
    """Rules of a new access document are true for no event of topics that exist."""


class ConfigError(TidemarkError):
    """A configuration is refused. `key` names the setting and `source` the file, where they are known."""

    def __init__(self, reason: str, *, key: str = "", source: str = "") -> None:
        super().__init__(": ".join(part for part in (source, key, reason) if part), reason=reason)
        self.key = key
        self.source = source


class StaleTopologyError(ConfigError):
    """A change was made of version `expected` of the topology, and version `actual` is in force."""

    def __init__(self, *, expected: int, actual: int) -> None:
        reason = f"the overlay has version {actual} by now, not {expected}: look at it and plan again"
        super().__init__(reason, key="version")
        self.expected = expected
        self.actual = actual


class OverlayChangeError(TidemarkError):
    """A change to a running overlay did not come about because of a broker; applying it again goes on."""

    def __init__(self, reason: str, *, broker: str) -> None:
        super().__init__(reason)
        self.broker = broker


class BackupError(TidemarkError):
    """A backup was not made, or cannot be put back; no unfinished one is ever taken for a whole one."""


class ClientError(TidemarkError):
    """The thing that a client asked for did not happen."""


class NotConnectedError(ClientError):
    """No broker can be reached."""


class TimedOutError(ClientError):
    """No answer came in time, and whether the thing happened is not known.

    Asking again is safe. Publishing again is safe only under the same sequence: see `publish(sequence=...)`.
    """


class ClosedError(ClientError):
    """The connection, the subscription or the client was closed."""


class RefusedError(ClientError):
    """The broker refused a request. `what` is the kind of request and `name` says which one it was.

    `code` is for programs, and one of wire.frames.REFUSALS.
    """

    def __init__(self, reason: str, *, what: str, name: str, code: str) -> None:
        super().__init__(f"{what} {name}: {reason}" if name else f"{what}: {reason}", reason=reason)
        self.what = what
        self.name = name
        self.code = code

    def with_reason(self, reason: str) -> RefusedError:
        """Return the same refusal with another reason."""
        return RefusedError(reason, what=self.what, name=self.name, code=self.code)


class NotSubscribedError(ClientError):
    """The queue `name` is not subscribed to the topic, so nothing is kept for the queue: subscribe first."""

    def __init__(self, name: str, *, topic: str) -> None:
        super().__init__(f"{name!r} is not subscribed to {topic!r}: call subscribe({topic!r}) first")
        self.name = name
        self.topic = topic


class EmptyError(ClientError):
    """A queue has no message of the topic beside those that were handed out: get again later."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no message in {topic!r} now: get again later, or with a longer timeout")
        self.topic = topic


class StorageError(TidemarkError):
    """The disk refused, or has files that cannot be used. `path` is the file or directory."""

    def __init__(self, reason: str, *, path: str) -> None:
        super().__init__(f"{path}: {reason}", reason=reason)
        self.path = path


class DiskFullError(StorageError):
    """There is no space: nothing was written. Reads go on; try again when space has returned."""


class DiskFailedError(StorageError):
    """A write or a sync failed, so what is on the disk is not known: stop acknowledging, and restart."""


class DirectoryLockedError(StorageError):
    """Another process uses the directory; `holder` is its process id where that is known."""

    def __init__(self, reason: str, *, path: str, holder: int | None = None) -> None:
        super().__init__(reason, path=path)
        self.holder = holder


class StoreAwayError(StorageError):
    """An object store does not answer, or answers that it cannot: it is tried again when it has returned."""


class FencedError(StorageError):
    """Another process has become the writer of an archive: this one has to stop writing."""


class UnknownFormatError(StorageError):
    """The files are of another program, another volume or a newer version; nothing was touched."""


class DamagedError(StorageError):
    """Bytes that were written cannot be read back. `offset` counts bytes from the start of the file."""

    def __init__(self, reason: str, *, path: str, offset: int) -> None:
        super().__init__(f"{reason} (at byte {offset})", path=path)
        self.offset = offset


def _pointer(text: str, position: int) -> str:
    """The line of `text` around `position`, with a caret under it."""
    if not text:
        return ""
    start = text.rfind("\n", 0, position) + 1
    stop = text.find("\n", position)
    line = text[start : len(text) if stop < 0 else stop]
    left = max(0, position - start - 60)
    return f"\n  {line[left : left + 100]}\n  {' ' * (position - start - left)}^"
