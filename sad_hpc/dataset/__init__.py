"""Datasets on disk: schema, writing, reading, verification, import and export."""
