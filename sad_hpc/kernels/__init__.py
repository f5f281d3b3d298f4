"""What all compiled code rests on: where it is kept, and its random numbers."""

from sad_hpc.kernels import compilation  # noqa: F401 (first: it says where compiled code is kept)
