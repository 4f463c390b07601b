"""The broker beside hostile clients: what a well-behaved client notices of them."""
