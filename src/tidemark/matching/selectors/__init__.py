"""Selectors: text to a checked tree, the tree as text again, and its truth for one event.

`selector.Selector.parse` is the entry: `lexer` and `parser` make the tree from text, by the rules that
`grammar` and `literals` share with `render`, and `check` holds it against the topic's fields, with hints by
`suggest`. `tree` defines the nodes and what they mean. `evaluate` is the reference for that meaning, one
event at a time, with `like` for LIKE patterns. `render` writes the canonical text of a tree.
"""
