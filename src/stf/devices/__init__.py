"""Which devices there are, and the driver for them."""
