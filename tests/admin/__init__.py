"""Tests of the library for administrators, and of the answers that brokers give them."""
