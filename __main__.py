"""`python -m shardtrace`: the command `shardtrace` (cli/main.py)."""
import sys

from .cli.main import main

sys.exit(main())
