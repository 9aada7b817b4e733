"""Op declarations, one subject per file; `ir/dialect.py` imports them all."""
