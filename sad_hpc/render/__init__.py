"""Pictures of Miniworld, by the `miniworld` package; only these modules need it and OpenGL."""
