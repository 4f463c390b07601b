"""The benchmark of the message format, beside other formats."""
