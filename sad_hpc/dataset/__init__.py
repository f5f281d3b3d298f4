"""A dataset on disk: its schema, and how it is written, read and verified."""
