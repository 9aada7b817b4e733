"""From Python to programs: tracers, staging, and the functions that users call while tracing."""
