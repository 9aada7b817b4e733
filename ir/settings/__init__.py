"""Settings, and what is current in a thread: mesh, interpreter, phase of the work."""
