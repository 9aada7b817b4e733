"""The numpy functions over traced and concrete arrays."""
