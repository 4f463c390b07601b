"""What a simulated world is checked against: the ground truth, and the oracle that knows it."""
