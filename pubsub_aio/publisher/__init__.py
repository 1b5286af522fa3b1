"""Publishing: what waits, what is on its way, and what has become of it."""
