"""Tests of the experiments of the papers and of the pages that are made of them."""
