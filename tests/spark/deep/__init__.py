"""Tests of deep catch-up, without a broker and with one."""
