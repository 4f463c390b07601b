"""Tests of the archive; `small_archive` writes small archives without a broker."""
