"""The `shardtrace` command and its reports."""
