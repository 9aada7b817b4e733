"""Ground floor: what a program is. Imports nothing from the other folders."""
