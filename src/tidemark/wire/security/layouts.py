"""The layouts of the frames of proofs. Their kinds are 29 to 31 between brokers, 61 and 62 for clients."""

from __future__ import annotations

from tidemark.wire.fields import NAME, integer, many, text
from tidemark.wire.layouts import record
from tidemark.wire.limits import (
    ACCESS_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    MECHANISMS_MAX,
    OVERLAY_VERSION_MAX,
    PROOF_BYTES_MAX,
)
from tidemark.wire.security.frames import Access, Challenge, LinkProof, Login, Proof

_PROOF = text(PROOF_BYTES_MAX, what="a proof")

LAYOUTS = (
    record(Challenge, 29, nonce=NAME, frame_bytes_max=HANDSHAKE_BYTES_MAX),
    record(LinkProof, 30, proof=NAME, frame_bytes_max=HANDSHAKE_BYTES_MAX),
    record(
        Access,
        31,
        version=integer(0, OVERLAY_VERSION_MAX),
        digest=NAME,
        text=text(ACCESS_BYTES_MAX, what="an access document"),
    ),
    record(
        Login,
        61,
        mechanisms=many(NAME, MECHANISMS_MAX, what="mechanisms"),
        payload=_PROOF,
        frame_bytes_max=HANDSHAKE_BYTES_MAX,
    ),
    record(Proof, 62, mechanism=NAME, payload=_PROOF, frame_bytes_max=HANDSHAKE_BYTES_MAX),
)
