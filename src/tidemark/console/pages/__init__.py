"""The pages of the console: what a browser sees. Each module has the pages of one subject."""
