"""Backends submit: they turn slots and events into a driver's streams, or into graph nodes."""
