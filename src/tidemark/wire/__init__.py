"""The wire: frames between brokers, and between brokers and clients, as values and as bytes.

`frames` has the frames as immutable values. A sender calls `codec.encode`; a receiver feeds what arrives to a
`decoder.FrameDecoder`. Both find the layout of a frame in `peer_layouts` and `client_layouts`, which are
written in terms of `layouts` (one frame), `fields` (the parts of a frame) and `tails` (the batch at its end).
`limits` bounds every part, and `versions` chooses the version of the protocol that two sides speak.
docs/wire.md describes the bytes.

`answers` has what brokers answer to administrators, as dataclasses that `json_objects` turns into JSON and
back. `rendezvous` is the hash by which every process makes the same choice among brokers or pubends.
"""
