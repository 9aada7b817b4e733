"""Making arrays: from values, filled with one, ranges of numbers, grids; and the dtypes."""
