"""Matrix decompositions and triangular systems over stacks of matrices."""
