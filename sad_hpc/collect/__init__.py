"""The MPI stage that collects a dataset: ranks make blocks of tasks and write them as shards."""
