"""What would avoid waste: candidate changes of shardings, each costed as a whole, and warnings."""
