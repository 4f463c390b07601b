"""Normal forms of selectors, and what is done with them: covering and summaries.

`normal.normalise` is the entry: it turns a tree into clauses, with `leaves` for the conditions at the bottom
of the tree and `domains` for constants. `clauses` has the clause and its constraints, `constraints` the sets
of values of one field, `clause_algebra` how clauses meet and shrink, `implication` what one condition says
about another. `clause_tree` turns clauses back into a tree. `covering` decides whether one selector matches
all that another matches; `summary` replaces many interests by a few wider ones, with `merging` for the
widening.
"""
