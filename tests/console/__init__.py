"""Tests of the console and the HTTP door, on a real broker and real sockets."""
