"""Calls from traced code to functions of the host: callbacks, printing, breakpoints."""
