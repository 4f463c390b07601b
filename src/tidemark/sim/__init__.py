"""The simulator: whole networks of brokers in one thread on simulated time, with faults and an oracle.

docs/simulator.md explains how to run it, how to read a trace and how to extend it.
"""
