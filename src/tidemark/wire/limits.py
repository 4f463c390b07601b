"""How large each part of a frame may be, and which versions of the protocol there are (FAULTS, limits).

Both sides hold to them: an encoder refuses what is over them, so that a decoder never has to.
"""

from __future__ import annotations

from tidemark.message.batches.batch import BATCH_BYTES_MAX

#: between clients and brokers: since 2, a refusal may end with the addresses of other brokers
PROTOCOL_OLDEST = 1
PROTOCOL_NEWEST = 2
#: between brokers: since 2, interest and repair are by pubend, and release is by host
LINK_OLDEST = 2
LINK_NEWEST = 2

#: before it is known who speaks; Hello, Connect and Welcome always fit
HANDSHAKE_BYTES_MAX = 8 << 10

#: what goes before a batch fits into the difference: names, and RANGES_MAX ranges
FRAME_BYTES_MAX = BATCH_BYTES_MAX + (128 << 10)

NAME_BYTES_MAX = 255
SELECTOR_CHARACTERS_MAX = 4_096
#: no character has more than 4 bytes in UTF-8
SELECTOR_BYTES_MAX = 4 * SELECTOR_CHARACTERS_MAX
SCHEMA_BYTES_MAX = 256 << 10
REASON_BYTES_MAX = 64 << 10
JSON_BYTES_MAX = 8 << 20
OVERLAY_BYTES_MAX = 1 << 20

RANGES_MAX = 4_096
WANTED_MAX = 65_536
SCHEMAS_MAX = 1_024
NEIGHBOURS_MAX = 4_096
ROWS_MAX = 4_096
PUBENDS_MAX = 4_096
TOKEN_PUBENDS_MAX = 65_536
ACKS_MAX = 65_536
#: of other brokers, in a refusal
ADDRESSES_MAX = 64
#: of one recall: a subscriber's changes of mind that are not acknowledged
LINES_MAX = 256
