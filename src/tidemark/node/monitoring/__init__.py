"""What monitoring systems read: the pages /health and /metrics, and the server for them."""
