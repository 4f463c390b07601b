"""Queues: subscribe, unsubscribe, put and get by topic, exactly once whatever crashes and when.

The service of *Implementation of a Reliable Pub/Sub Service*, with its rules and without its losses. A queue
keeps what it must not forget in its state file; docs/queue.md says what each call promises.

    with tidemark.queue.connect("tidemark://127.0.0.1:7676", name="billing", state="billing.db") as queue:
        queue.subscribe("orders")
        with queue.take("orders") as order:
            queue.put("invoices", {"order": order["id"]})
"""

from __future__ import annotations

from tidemark.errors import EmptyError, NotSubscribedError
from tidemark.queue.messages import Message
from tidemark.queue.queue import Queue, connect

__all__ = ["EmptyError", "Message", "NotSubscribedError", "Queue", "connect"]
