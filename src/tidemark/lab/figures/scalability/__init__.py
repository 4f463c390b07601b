"""The I/O figures of the paper on scalability and throughput: writes, sets of sockets, and workers."""
