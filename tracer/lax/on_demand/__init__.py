"""Functions of lax that load when first used."""
