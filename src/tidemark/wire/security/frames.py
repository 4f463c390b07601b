"""Frames of proofs: clients log in, brokers prove that they belong together, access documents spread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Login:
    """A broker asks who a client is, in answer to Connect; later ones carry on what the client began.

    Only clients that speak version 4 of the protocol are sent it.
    """

    #: how the client can prove itself: SCRAM-SHA-256, BEARER
    mechanisms: tuple[str, ...]
    #: what the mechanism says next; empty in the first one
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """A client proves who it is, by the mechanism it names; on a live connection, proves it anew."""

    mechanism: str
    payload: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """A broker asks another, after both Hellos, to prove that it has the key of the overlay."""

    #: drawn at random for this connection, in hexadecimal digits
    nonce: str


@dataclass(frozen=True, slots=True)
class LinkProof:
    """The answer to a Challenge: an HMAC over both nonces and both names, in hexadecimal digits."""

    proof: str


@dataclass(frozen=True, slots=True)
class Access:
    """The access document that the sender uses. On each new link `text` is empty: versions are compared.

    The processes of two brokers exchange this frame; the broker core learns of changes by AccessChanged.
    """

    version: int
    #: differs for two documents of one version
    digest: str
    text: str = ""


SecurityFrame = Login | Proof | Challenge | LinkProof | Access
