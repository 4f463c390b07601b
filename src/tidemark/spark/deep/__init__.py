"""Deep catch-up: subscribers from beyond what pubends hold are served from the archive in one shared scan."""
