"""Functions that come with derivatives of their own."""
