"""The inside of the log volume: records, segments, recovery. `storage.volume` is the door."""
