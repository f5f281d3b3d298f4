"""Pretraining (Algorithm 4): examples, the DeepSpeed engine, checkpoints and metrics."""
