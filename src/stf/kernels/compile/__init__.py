"""Compilers of kernels, and what they made, on disk."""
