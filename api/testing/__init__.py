"""`shardtrace.testing`: what a function may communicate and hold, as assertions."""
from shardtrace.driver.budgets import assert_comm as assert_comm
