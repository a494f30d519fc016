"""The face: a context, which wires a backend to a driver."""
