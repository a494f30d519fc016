"""Logical data: made, registered, filled, lent, waited for."""
