"""Algorithm 4's training: examples, the DeepSpeed engine, checkpoints and metrics."""
