"""Queues: orders are billed exactly once, whatever crashes.

The shop puts three orders. Billing takes each of them, writes a bill into its own table, and puts an invoice:
all three happen together or not at all. Start a broker first, `./run up`, then, in an empty directory:

    python examples/work_queue.py [tidemark://127.0.0.1:7676]
"""

from __future__ import annotations

import sys

import tidemark.queue


def bill_all(billing: tidemark.queue.Queue) -> None:
    """Bill orders until there are none."""
    while True:
        try:
            # The block is one transaction of the state file billing.db.
            with billing.take("orders", timeout=1) as order:
                assert isinstance(order, dict)
                billing.database.execute("CREATE TABLE IF NOT EXISTS bills (customer TEXT, amount INTEGER)")
                billing.database.execute("INSERT INTO bills VALUES (?, ?)", (order["by"], order["amount"]))
                # The invoice is sent when the block has ended without an exception.
                billing.put("invoices", f"{order['by']} owes {order['amount']}")
        except tidemark.EmptyError:
            return


def main(url: str) -> None:
    with (
        tidemark.queue.connect(url, name="billing", state="billing.db") as billing,
        tidemark.queue.connect(url, name="shop", state="shop.db") as shop,
    ):
        billing.subscribe("orders")
        shop.subscribe("invoices")
        for customer, amount in (("ann", 30), ("bob", 12), ("cid", 7)):
            # With an id the same order is put once, also if this program is started again.
            shop.put("orders", {"by": customer, "amount": amount}, message_id=f"order of {customer}")
        bill_all(billing)
        billing.flush()
        while True:
            try:
                print(shop.get("invoices", timeout=1))
            except tidemark.EmptyError:
                return


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tidemark://127.0.0.1:7676")
