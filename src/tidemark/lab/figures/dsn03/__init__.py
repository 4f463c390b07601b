"""The experiments of DSN'03: subscribers come and go, and a subscriber hosting broker crashes."""
