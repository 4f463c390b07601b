"""Normal forms: selectors as boxes, what covers what, and summaries of many."""
