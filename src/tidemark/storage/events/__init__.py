"""The event log of a pubend: events, the last batch of each publisher, and what recovery needs."""
