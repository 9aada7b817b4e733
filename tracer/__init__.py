"""From Python to programs: tracers, staging, and the functions that users call while tracing.

    trees         pytrees
    staging       tracers, and what records their equations as a program
    shardings     the context mesh, out_sharding, reshard and the axes' modes
    operands      promotion, broadcasting and checks that come before an op
    references    arrays that are read and written in place
    lax           the functions of jax.lax
    autodiff      derivatives
    indexing      x[index]
    batching      vmap
    jnp, random, nn, scipy           the functions of jax.numpy and of the modules named so
    arrays        functions as operators and methods of arrays
    shard_map     programs of one device on blocks
    host          callbacks, printing, breakpoints
    checkify      errors as values of a program
    advice        what errors about shardings add to their message

A folder imports those above it and never one that imports it, which a test in tests/repository
enforces; the files next to them are modules of JAX that fit in one file here.
"""
