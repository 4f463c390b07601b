"""Other worlds: schemas and values of Python, JSON and Arrow."""
