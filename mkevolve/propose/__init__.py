"""Proposers: where candidates come from. Nothing here accepts one."""
