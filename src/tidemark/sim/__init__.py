"""The simulator: whole networks in one thread on simulated time, with faults, judged by an oracle."""
