"""The configs and Slurm scripts of the package: links to the repository's folders."""
