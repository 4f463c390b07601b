"""Administration as a library: what a program or the command line asks of brokers and overlays."""
