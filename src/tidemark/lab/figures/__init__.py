"""Figures: the experiments of the papers, run here, with the papers' findings beside ours."""
