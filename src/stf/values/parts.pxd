# Compiled: what is here runs with each task whose arguments are containers.
