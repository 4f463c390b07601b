"""The frames by which the ends of a connection prove who they are, and by which access documents spread."""
