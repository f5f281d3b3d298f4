"""The MPI stage that makes a dataset: blocks of tasks, dealt to ranks, written as shards."""
