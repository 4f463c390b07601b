"""The disk of a broker process: its directory, its threads, and how much waits to become durable."""
