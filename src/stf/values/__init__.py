"""Values that are known later: parameters, scalar expressions, conditions, reducers, containers of data."""
