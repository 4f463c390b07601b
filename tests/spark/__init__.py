"""Tests of `tidemark.spark`: one package for each of its packages; what concerns several of them is here."""
