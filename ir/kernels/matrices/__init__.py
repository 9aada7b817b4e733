"""Products and decompositions of matrices: contractions, convolutions as products, LAPACK."""
