"""What would avoid a collective: candidate changes, each costed on the whole program.

    candidates, layouts/                            which changes are worth a trial, likeliest first
    changes, code/, interleaving/                   a change as data: of shardings, of the code, of
                                                    the order of rows
    trials, repetition                              a program partitioned with changes made
    suggestions, pairs, kinds, ranking, suggestion  those that help, the most worth first
"""
