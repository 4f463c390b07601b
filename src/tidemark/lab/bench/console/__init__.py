"""The console beside a loaded broker: what it costs the broker and its other clients."""
