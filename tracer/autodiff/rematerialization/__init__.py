"""checkpoint (remat): what a derivative saves, what it recomputes, and how to list the former."""
