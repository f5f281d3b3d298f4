"""A compiled kernel for forward, loss and backward pass of a training step, on CPUs in float32."""
