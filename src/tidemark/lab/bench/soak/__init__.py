"""A steady load for as long as one likes, with kills: latency, memory and files over time, and exactness."""
