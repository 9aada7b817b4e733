"""Elements by position or value: taking, updating, searching, sorting, sets."""
