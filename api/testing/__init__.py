"""`shardtrace.testing`: what a function may communicate, hold and compute, as assertions."""
from shardtrace.driver.analysis.budgets import assert_comm as assert_comm
from shardtrace.driver.analysis.checks import assert_equivalent as assert_equivalent
from shardtrace.driver.analysis.checks import fuzz_equivalent as fuzz_equivalent
from shardtrace.ir.api_boundary import bound_names as _bound_names

_bound_names(globals())
