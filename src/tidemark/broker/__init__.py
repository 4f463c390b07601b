"""The protocol core: roles without I/O. A stimulus in, effects out; no clock, no chance, no await."""
