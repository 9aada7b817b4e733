"""`autoshard`: finds good specs for a function.

It searches over plans and judges each by the whole program that it leads to. Read in this order:

    model/           what layouts cost, and the cheapest choice of them
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
