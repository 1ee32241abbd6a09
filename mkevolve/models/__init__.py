"""Built-in model families; siblings of one family share a file."""
