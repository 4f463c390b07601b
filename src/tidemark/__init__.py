"""Tidemark: durable, content-based publish/subscribe over one log that Spark reads too.

`tidemark.connect` and `tidemark.sync.connect` are the way in. Every public name is imported when a program
first uses it, so that `import tidemark` is fast and a program loads only the parts that it needs. Type
checkers see the ordinary imports below, and report a name that is not among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from tidemark import admin, errors, queue, spark, sync
    from tidemark.client.checkpoints import (
        CheckpointStore,
        DatabaseConnection,
        DbApiCheckpoints,
        SqliteCheckpoints,
    )
    from tidemark.client.client import Client, connect
    from tidemark.client.connecting.credentials import LoginOptions, Secret
    from tidemark.client.connecting.options import ConnectOptions
    from tidemark.client.events import Batch, Event, Gap
    from tidemark.client.listening import listen
    from tidemark.client.publishing.outgoing import Ticks
    from tidemark.client.subscribing.arguments import SERVER_KEPT, AckMode, ServerKept, SubscribeOptions
    from tidemark.client.subscribing.session import Upto
    from tidemark.client.subscribing.start_position import Start
    from tidemark.client.subscribing.subscription import Subscription
    from tidemark.client.subscribing.transaction import Transaction
    from tidemark.errors import (
        AccessError,
        BackupError,
        ClientError,
        ClosedError,
        ConfigError,
        DamagedError,
        DecodeError,
        DirectoryLockedError,
        DiskFailedError,
        DiskFullError,
        EmptyError,
        EncodeError,
        EventsLostError,
        FencedError,
        FrameError,
        GapError,
        IncompatibleSchemaError,
        MessageError,
        NeighbourError,
        NotConnectedError,
        NotSubscribedError,
        OverlayChangeError,
        RefusedError,
        RuleMisfitError,
        SchemaError,
        SchemaSyntaxError,
        SelectorError,
        SelectorLimitError,
        SelectorSyntaxError,
        SelectorTypeError,
        StaleAccessError,
        StaleTopologyError,
        StorageError,
        StoreAwayError,
        TidemarkError,
        TimedOutError,
        TokenError,
        TopicError,
        TranslationError,
        UnknownFormatError,
        VersionError,
        WireError,
    )
    from tidemark.message.batches.batch import BatchBuilder, Buffer, EventBatch, Shape
    from tidemark.message.codec.access import Accessor
    from tidemark.message.schema import Schema
    from tidemark.ticks.tick import Tick
    from tidemark.ticks.token import CheckpointToken
    from tidemark.wire.questions import Question

__all__ = [
    "AccessError",
    "Accessor",
    "AckMode",
    "BackupError",
    "Batch",
    "BatchBuilder",
    "Buffer",
    "CheckpointStore",
    "CheckpointToken",
    "Client",
    "ClientError",
    "ClosedError",
    "ConfigError",
    "ConnectOptions",
    "DamagedError",
    "DatabaseConnection",
    "DbApiCheckpoints",
    "DecodeError",
    "DirectoryLockedError",
    "DiskFailedError",
    "DiskFullError",
    "EmptyError",
    "EncodeError",
    "Event",
    "EventBatch",
    "EventsLostError",
    "FencedError",
    "FrameError",
    "Gap",
    "GapError",
    "IncompatibleSchemaError",
    "LoginOptions",
    "MessageError",
    "NotConnectedError",
    "NotSubscribedError",
    "OverlayChangeError",
    "Question",
    "RefusedError",
    "RuleMisfitError",
    "SERVER_KEPT",
    "Schema",
    "SchemaError",
    "SchemaSyntaxError",
    "Secret",
    "SelectorError",
    "SelectorLimitError",
    "SelectorSyntaxError",
    "SelectorTypeError",
    "ServerKept",
    "Shape",
    "SqliteCheckpoints",
    "Start",
    "StaleAccessError",
    "StaleTopologyError",
    "StorageError",
    "StoreAwayError",
    "SubscribeOptions",
    "Subscription",
    "Tick",
    "Ticks",
    "TidemarkError",
    "TimedOutError",
    "TokenError",
    "TopicError",
    "Transaction",
    "TranslationError",
    "NeighbourError",
    "UnknownFormatError",
    "Upto",
    "VersionError",
    "WireError",
    "admin",
    "connect",
    "errors",
    "listen",
    "queue",
    "spark",
    "sync",
]

#: module -> the public names that it defines; the names that are not here are classes of tidemark.errors
_HOMES = {
    "tidemark.client.checkpoints": (
        "CheckpointStore",
        "DatabaseConnection",
        "DbApiCheckpoints",
        "SqliteCheckpoints",
    ),
    "tidemark.client.client": ("Client", "connect"),
    "tidemark.client.listening": ("listen",),
    "tidemark.client.connecting.credentials": ("LoginOptions", "Secret"),
    "tidemark.client.connecting.options": ("ConnectOptions",),
    "tidemark.client.events": ("Batch", "Event", "Gap"),
    "tidemark.client.publishing.outgoing": ("Ticks",),
    "tidemark.client.subscribing.arguments": ("SERVER_KEPT", "AckMode", "ServerKept", "SubscribeOptions"),
    "tidemark.client.subscribing.session": ("Upto",),
    "tidemark.client.subscribing.start_position": ("Start",),
    "tidemark.client.subscribing.subscription": ("Subscription",),
    "tidemark.client.subscribing.transaction": ("Transaction",),
    "tidemark.message.batches.batch": ("BatchBuilder", "Buffer", "EventBatch", "Shape"),
    "tidemark.message.codec.access": ("Accessor",),
    "tidemark.message.schema": ("Schema",),
    "tidemark.ticks.tick": ("Tick",),
    "tidemark.ticks.token": ("CheckpointToken",),
    "tidemark.wire.questions": ("Question",),
}
_SUBMODULES = ("admin", "errors", "queue", "spark", "sync")
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


# A module with a __getattr__ has every attribute in the eyes of a type checker: a typo would pass unnoticed.
if not TYPE_CHECKING:

    def __getattr__(name):
        """Import and return the public name; AttributeError if there is no such name."""
        from importlib import import_module

        if name in _SUBMODULES:
            return import_module(f"tidemark.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOME_OF.get(name, "tidemark.errors")), name)
        return found


def __dir__() -> list[str]:
    """The public names, also those that no program has used yet."""
    return sorted((*__all__, "__version__"))
