"""The report on an archive and its brokers over time.

`figures.figures` computes it on Spark, and `html.page` draws it. All comes from the archive itself: the ticks
of its events, its tables, and its diary of rounds.
"""
