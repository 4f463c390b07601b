"""Tests of backups: how they are made, and what a broker that goes on from one promises."""
