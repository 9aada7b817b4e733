"""checkpoint (remat): what a derivative keeps, what it computes again, and a list of the former."""
