"""What would avoid a collective: candidate changes of shardings, each costed as a whole."""
