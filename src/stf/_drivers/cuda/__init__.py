"""The CUDA driver: one verb, one call or a few."""
