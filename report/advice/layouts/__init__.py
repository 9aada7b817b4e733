"""Layouts that values may have instead of theirs, and changes to these.

    placed_values, placed_results    where each value is made, laid out and read; results
    other_layouts, freedoms          layouts of one value; those on which several arguments agree
    grouped_changes, value_changes   a change with all that goes with it; all changes of a value
    charges                          which values collectives are there for
"""
