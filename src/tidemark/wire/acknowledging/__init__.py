"""What subscribers have consumed, on the wire: an acknowledgement may be long, and is read in steps."""
