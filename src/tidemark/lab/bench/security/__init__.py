"""What security costs: TLS, a rule for each of many principals, and logins with wrong passwords."""
