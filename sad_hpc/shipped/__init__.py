"""The configs and Slurm scripts that come with the package: links to the repository's folders."""
