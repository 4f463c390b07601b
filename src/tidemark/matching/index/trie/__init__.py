"""The trie of the index: where boxes are filed so that an event finds the few that may hold it."""
