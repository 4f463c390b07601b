"""The index under the batch matcher: boxes, found through the cells of a grid they lie in."""
