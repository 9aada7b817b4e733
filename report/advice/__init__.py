"""What would avoid waste: changes of shardings, tried as a whole, and warnings."""
