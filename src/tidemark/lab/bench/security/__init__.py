"""What security costs: TLS, a rule for each of many principals, and somebody who tries passwords."""
