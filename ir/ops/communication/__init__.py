"""Ops that move data between devices, and the plans of such exchanges.

In this order: `collective.py` declares JAX's collectives, by `collective_shapes.py` (shapes, factor
rules) and `group_exchange.py` (data and bytes on the wire); `collective_kinds.py` names them as
hardware does, `variadic.py` makes one exchange of several. `sharding.py` has reshard and
constraints. The rest is exchanges that lowering makes: `halo_plan.py` and `halo_exchange.py`,
`retiling.py` and `retile.py`, `row_exchange_plan.py` and `exchange_rows.py`, `column_sort.py`.
"""
