"""One module per command: what it is asked, and what it prints."""
