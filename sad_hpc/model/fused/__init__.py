"""Forward, loss and backward of a training step as one compiled kernel, for CPUs in float32."""
