"""How large each part of a frame may be, and which versions of the protocol there are (docs/limits.md).

Both sides keep to the limits: an encoder refuses a frame that is over them, so a decoder that meets one knows
that the bytes are damaged or foreign.
"""

from __future__ import annotations

from tidemark.message.batches.batch import BATCH_BYTES_MAX

#: versions of the protocol between clients and brokers; since version 2, Refused may end with addresses;
#: since version 3, Describe may end with the shapes that are asked for; since version 4, a broker may ask for
#: a Login; since version 5, Subscribe may end with the last broker, and Ack with credit; since version 6,
#: Topic may end with its generation; since version 7, a named publisher says Leave and Come
PROTOCOL_OLDEST = 1
PROTOCOL_NEWEST = 7
#: versions between brokers; since version 2, Interest and Nack are by pubend and Release has a row by host;
#: since version 3, brokers say Ways; since version 4, Together and Yielded, Claim may end with whom it is
#: for, and Heard with what is lost; since version 5, Topic may end with its generation; since version 6,
#: brokers pass Leave and Left on; since version 7, Claim may end with the owner; since version 8, Leave may
#: end with who asks
LINK_OLDEST = 2
LINK_NEWEST = 8

#: a frame before the handshake is done; Hello, Connect, Resume, Pushing and Welcome always fit
HANDSHAKE_BYTES_MAX = 8 << 10

#: The fields before a batch fit into the difference: a few names, and RANGES_MAX ranges.
FRAME_BYTES_MAX = BATCH_BYTES_MAX + (128 << 10)

#: What one Publish may bring: its batch, and the topics, schemas and publishers that the batch names. A
#: broker logs and matches a batch in one piece, and everybody else waits meanwhile.
PUBLISH_BYTES_MAX = 4 << 20
PUBLISH_NAMES_BYTES_MAX = 256 << 10
#: How many Publish frames are read as one at the most, and the bytes of their events together.
JOINED_MAX = 64
JOINED_BYTES_MAX = 512 << 10

#: Numbers end long before int64 does: its last value has no successor, and there has to be room to count on
#: from any number that came in. Versions and row numbers count from the incarnation, shifted by 32 bits. A
#: time of day is in microseconds. Ticks have bounds of their own (`ticks.tick`).
INCARNATION_MAX = 2**30 - 1
#: An incarnation is at most so much higher than the one before: a restored broker leaves out so many.
INCARNATIONS_MAX = 2**24
VERSION_MAX = 2**62 - 1
SEQUENCE_MAX = 2**62 - 1
TICKET_MAX = 2**62 - 1
#: A subscriber's time of day; an epoch begins as one, and is counted up from there.
STAMP_MAX = 2**61 - 1
EPOCH_MAX = 2**62 - 1
#: An epoch that does not follow a known one is at most so many microseconds, three days, ahead of the clock
#: of the broker that hears of it. A subscriber's clock counts if it is a day ahead of its broker's at most,
#: the clocks of two brokers are a day apart at the most, and the third day is for counting up.
EPOCHS_AHEAD_US = 3 * 86_400_000_000
#: The moves of a publisher count from 1, or from a time of day; a pubend takes none that leaps, which is one
#: so many microseconds, a hundred years, ahead of its clock.
MOVE_MAX = 2**62 - 1
MOVES_AHEAD_US = 3_155_760_000_000_000
OVERLAY_VERSION_MAX = 2**53 - 1
#: versions of a topology or an access document that a broker can have missed
VERSIONS_MISSED_MAX = 2**20
CREDIT_BYTES_MAX = 2**48
SECONDS_MAX = 2**40
#: recalls that a pipeline offers to answer at a time
RECALLS_MAX = 2**31 - 1

NAME_BYTES_MAX = 255
SELECTOR_CHARACTERS_MAX = 4_096
#: A character has at most 4 bytes in UTF-8.
SELECTOR_BYTES_MAX = 4 * SELECTOR_CHARACTERS_MAX
SCHEMA_BYTES_MAX = 256 << 10
REASON_BYTES_MAX = 64 << 10
JSON_BYTES_MAX = 8 << 20
#: The arguments of a question. Some have a whole document, of whose characters JSON may make six each, or a
#: token.
ARGUMENTS_BYTES_MAX = 64 << 10
LONG_ARGUMENTS_BYTES_MAX = {
    "propose": 6 << 20,
    "propose_access": 6 << 20,
    "seek": 1 << 20,
    "archived": 1 << 20,
    "let_go": 1 << 20,
}
OVERLAY_BYTES_MAX = 1 << 20
ACCESS_BYTES_MAX = 4 << 20
#: one step of a proof, such as a bearer token; with the rest of its frame it fits into a handshake
PROOF_BYTES_MAX = 7 << 10
MECHANISMS_MAX = 16

RANGES_MAX = 4_096
#: lines of an Interest: four times as many as a broker tells
WANTED_MAX = 1_024
SCHEMAS_MAX = 16_384
#: shapes of an open topic that are asked for at a time
SHAPES_ASKED_MAX = 4_096
NEIGHBOURS_MAX = 4_096
ROWS_MAX = 4_096
#: frames in a Together
TOGETHER_MAX = 4_096
#: twice as much as brokers put into one (`broker.departures`)
TOGETHER_BYTES_MAX = 512 << 10
PUBENDS_MAX = 4_096
TOKEN_PUBENDS_MAX = 4_096
ACKS_MAX = 65_536
#: What a client of an earlier version says at once that acknowledges 10,000 subscriptions to one pubend fits
#: in; a client of this version sends frames of about ACK_TICKS ticks.
ACK_BYTES_MAX = 768 << 10
#: subscribers, ticks and credits of one acknowledgement together
ACK_ITEMS_MAX = 32_768
ACK_TICKS = 1_024
#: addresses of other brokers in a refusal
ADDRESSES_MAX = 64
#: lines of one recall, one for each selector that the subscriber had in the range
LINES_MAX = 256
