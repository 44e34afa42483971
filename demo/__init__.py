"""The demo: a year of real flights, a kill in the middle, and proof that no row was lost or counted twice."""
