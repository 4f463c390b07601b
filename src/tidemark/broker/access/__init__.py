"""What each client may do and see: `access_control` for what it says, `sight` for what it is told."""
