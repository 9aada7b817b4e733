"""What a per-device program costs on chosen hardware: time, memory, traffic, lower bounds."""
