"""StableHLO with Shardy's annotations, read as programs of shardtrace.

The text is parsed by jaxlib. `module.py` is the entrance, `replay.py` goes through the operations,
and what stands for each is in `ops.py`, `regions.py` and `shardy.py`.
"""
