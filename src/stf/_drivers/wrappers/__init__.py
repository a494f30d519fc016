"""Drivers around another driver: for tests, and for whoever writes one."""
