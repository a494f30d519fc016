"""Remote devices: the verbs of a driver as commands for other processes."""
