"""The swarm: worlds made and run from seeds, the faults in them, planted bugs, and reports."""
