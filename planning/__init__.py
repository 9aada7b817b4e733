"""`autoshard`: finds good specs for a function.

It searches over plans and judges each by the whole program that it leads to. Read in this order:

    groups           values that share one layout
    moves            the prices of bringing values from one layout to another
    model            the cost of each layout of a group, as tables, at the partitioner's prices
    memory           what a device holds at its peak, for a choice of layouts
    bounds           the least cost that any choice can have, and what a cheaper one may use
    solve            the cheapest choice: coordinate descent, and a mixed-integer program
    roles            which dimensions are the batch, the sequence, and those of parameters
    named_plans      data, FSDP, tensor and sequence parallelism, and mixtures, as choices
    trials           plans, partitioned and costed as whole programs
    joint_changes    choices in which all split parameters change together
    optimizer_states     state of an optimizer that is split where its parameter is whole
    search           candidates from all of these; the best one is the answer
    meshes           candidate meshes, where only the number of devices is given
    autoshard        the function itself
    proposal_data, proposal, proposal_text    its answer, as data and as text
"""
