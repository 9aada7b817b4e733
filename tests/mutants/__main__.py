"""`python -m tests.mutants`: see survey.py."""
import resource
import sys
import time

from .corpus import corpus, examples
from .survey import limit_memory, survey

groups = (corpus(), corpus(), corpus(), examples())
start = time.perf_counter()
limit_memory()
counts, failures = survey(int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0, groups)
for text, trace in failures.values():
    print(trace, text if "-v" in sys.argv else "", sep="\n")
for kind, n in counts.most_common():
    print(f"{n:7} {kind}")
print(f"{time.perf_counter() - start:.0f} s, "
      f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
