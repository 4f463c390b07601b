"""Selectors over whole batches, as array operations.

`vector.compile_condition` is the entry: it compiles a tree to `predicates`. `operands` are the values that
`comparisons` compare, a whole column at a time; `arithmetic`, `decimals`, `strings`, `span_patterns` (LIKE)
and `promotion` (integers beside doubles) are the operations on arrays. `rowwise` evaluates conditions on
fields without arrays, one row at a time.
"""
