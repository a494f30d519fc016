"""Gaussian-process regression by tiled Cholesky: what `gp_cholesky.py` is made of."""
