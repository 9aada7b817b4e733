"""Functions along dimensions: sums, moments, quantiles, prefixes, counts."""
