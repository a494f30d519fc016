"""Drivers talk to the machine: streams, events, memory, copies. They know no task."""
