"""`python -m shardtrace`: the command `shardtrace` (cli/main.py)."""
import sys

from .cli import main

sys.exit(main())
