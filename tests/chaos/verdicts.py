"""What the chaos tests share: how a broker comes on stage, and what is expected of the ledgers."""

from __future__ import annotations

from tidemark.lab.ledger import Audit
from tidemark.lab.stage import BrokerPart, Part, Stage, wait_for


def started(stage: Stage, **settings: str) -> BrokerPart:
    """A broker of its own that listens."""
    broker = stage.broker(**settings)
    broker.start()
    return broker


def both_gave_up(times: int, *parts: Part) -> None:
    """Wait until each of them has found so many times that the broker does not answer."""

    def gave_up() -> bool:
        return all(part.log.read_text().count("has not answered for") >= times for part in parts)

    wait_for(gave_up, lambda: f"somebody waits for ever: {[part.last_words for part in parts]}")


def assert_exact(found: Audit, published: int) -> None:
    """All of it was acknowledged; every subscriber got its part of it once, in order, with no gaps."""
    assert (found.published, found.acknowledged) == (published, published)
    assert found.is_clean, found.as_dict()
    assert found.total("gaps") == 0
    assert all(account.delivered == account.matched > 0 for account in found.accounts)
