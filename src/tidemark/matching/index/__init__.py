"""The index of the batch matcher: boxes of keys, and how events find the few that may hold them.

`index.BoxIndex` is the entry for the matcher. A selector becomes boxes in `plans`, by way of `ranges` (a
constraint as ranges of keys); `keys` makes the keys of a batch's events. `boxes` stores the boxes, the `trie`
package files them so that an event finds them, `dense` checks a few against every event, and `conditions` has
the conditions that are no box. `rules` has the distinct selectors with their subscribers, and `match_sets`
numbers the sets of subscribers that events matched. `postings` and `arrays` are the tables all this is kept
in.
"""
