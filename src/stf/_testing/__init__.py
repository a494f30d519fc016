"""What `stf.testing` is made of."""
