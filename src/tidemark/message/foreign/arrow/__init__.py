"""Arrow: types of natural types, and events as record batches and back."""
