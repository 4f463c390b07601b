"""The publishing side of a broker: pubends, reads of their logs, and the release of what was consumed."""
