"""`python -m tests.fuzz`: see survey.py."""
import sys

from .survey import main

sys.exit(main(sys.argv[1:]))
