"""The inside of the log volume: records, segments, recovery. `storage.log.volume` is the door."""
