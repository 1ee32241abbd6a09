"""Beam search over candidates, stages, and the tuner of configurations."""
