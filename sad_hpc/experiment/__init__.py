"""What a config says: its sections, the rows of its tables, and what must fit together."""
