"""Subscribing: what was delivered, how far the application has got, and acknowledgements."""
