"""The transformer of all methods, its image encoder, and its weights on disk."""
