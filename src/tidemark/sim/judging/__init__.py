"""What a simulated world is judged by: the ground truth and the oracle."""
