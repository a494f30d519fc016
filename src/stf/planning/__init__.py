"""Plans: what a program would do on devices that are not here, before it runs."""
