"""The `shardtrace` command: argument parsing and printing only."""
