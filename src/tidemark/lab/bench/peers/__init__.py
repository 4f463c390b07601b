"""The same workloads against other systems that are installed on the machine, interleaved with Tidemark."""
