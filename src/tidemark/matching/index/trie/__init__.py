"""The trie of the index: where boxes are filed so that an event finds the few that may hold it.

`trie.Trie` is the entry for adding and removing boxes, `descent.Descent` for looking up the events of a
batch. `grid` divides the keys of a column into cells, `probes` knows which grids a node uses, and `cells`
finds the slot of a cell. `ladders` holds the boxes that are filed by a threshold, in `sorted_postings`.
"""
