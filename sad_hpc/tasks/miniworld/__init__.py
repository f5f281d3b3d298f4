"""Miniworld: rules, motion and images; only `environment` and `renderer` need OpenGL."""
