"""Tests of the ledgers, the audit in one process, and the faulty proxy."""
