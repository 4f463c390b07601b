"""Tests of the audit; `ledger_samples` and `ledger_witnesses` make ledgers with every kind of fault."""
