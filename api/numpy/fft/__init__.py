"""Public module `shardtrace.numpy.fft`: re-exports only."""
