"""The broker process: sockets, a disk thread and a clock around the sans-I/O broker."""
