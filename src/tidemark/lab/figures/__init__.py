"""Figures: the papers' experiments, run here; what the papers found beside what is found here."""
