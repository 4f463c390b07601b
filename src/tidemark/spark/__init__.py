"""Spark: the second reader of the one log. Today: types, selectors as SQL, filters, Java and sessions."""
