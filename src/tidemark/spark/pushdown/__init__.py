"""Conditions that Spark and Arrow push down, as selectors.

The entries are `filters.from_spark_filters` and `filters.from_arrow_expression`. `column_tests` turns one
test of a column into a selector that is true for the same events, or refuses; `arrow_filters` takes Arrow
expressions and lists apart, with the help of `substrait`, which reads the only documented form of an
expression.
"""
