"""Storage: run folders, atomic writes, locks, heartbeats and HDF5."""
