"""A function or a block, and its data."""
