"""Kernels: those that users bring, launched as tasks."""
