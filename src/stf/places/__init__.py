"""Where tasks run and where data are: places, grids, partitions."""
