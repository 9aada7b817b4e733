"""checkify: errors as values of the program in which they occur.

    errors        what an error is: kinds, causes, and the value `Error`
    check         what users write: `check` and related functions
    automatic     what is checked in addition: NaN, quotients, positions
    nested        loops, branches, calls and regions, which carry errors out
    checkify      the transformation
"""
