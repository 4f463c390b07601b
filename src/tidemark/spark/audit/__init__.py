"""The audit: do the ledgers show that every event was delivered exactly once and in order?

The entry is `audit.run`, or `audit.audit` with a session of one's own. `ledgers.gather` finds the ledgers and
cuts them into parts; `ledger_lines.read` turns parts into rows in Spark tasks; `selectors` decides which
subscribers wanted which event; `plan` has the queries that compare the two sides; `report.AuditReport` is
what comes out, and `table` and `html` show it to people.
"""
