"""What would avoid a collective: candidate changes of shardings, each costed as a whole.

    candidates, freedoms, other_layouts, charges    which changes are worth a trial, likeliest first
    changes, code/                                  a change as data: of shardings, of the code
    trials, repetition                              a program partitioned with changes made
    suggestions, kinds, ranking, suggestion         those that help, and the order they are told in
"""
