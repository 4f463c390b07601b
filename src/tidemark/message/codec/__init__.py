"""The codec: a schema in its flat form, values to bytes and back, and single fields from bytes.

`flat` flattens a natural type to a tree of leaves and is what everything else starts from; `layout` places
the leaves of one case in bytes. `encode` and `decode` turn whole values into messages and back, with
`scalars` and `lists` for the parts and `nested` for messages inside messages. `access` reads one field and
`many` several without decoding the rest. `node_members` lists the keys that a tuple's dict can have.
`message.schema.Schema` ties them together: other packages use it rather than the codec.
"""
