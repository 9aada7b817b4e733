"""Which specs a function should have: `autoshard`.

A search over plans that is judged by what really runs. Read in this order:

    groups      values that are laid out as one
    model       what layouts of groups cost, as tables, at the partitioner's prices
    memory      what a device holds at its peak, for a choice of them
    solve       the cheapest choice: descent, and a mixed-integer program
    roles       which dimensions are the batch, the sequence, those of parameters
    named       data, FSDP, tensor, sequence parallelism and mixtures, as choices
    trials      plans, partitioned and costed as whole programs
    search      candidates from all of these; the best is the answer
    meshes      the mesh, where only the number of devices is given
    autoshard   the function
    proposed, proposal, text    its answer, as data and as text
"""
