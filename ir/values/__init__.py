"""Values as users hand them over: arrays, their types, and types without an array."""
