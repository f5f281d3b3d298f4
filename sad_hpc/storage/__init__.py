"""Files that are whole or not there: run folders, locks, heartbeats and HDF5."""
