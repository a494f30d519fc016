"""Keeps tasks instead of running them, and launches them."""
