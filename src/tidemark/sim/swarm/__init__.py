"""The swarm: a seed makes a world with faults and runs it to its end; planted bugs; reports."""
