"""The engine: orders tasks and decides where data must be. Pure: it knows no CUDA, no thread and no clock."""
