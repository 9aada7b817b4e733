"""Errors: their classes, where in the user's source they belong, and what they say."""
