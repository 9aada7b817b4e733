"""Integrations: the plugin of pytest and the extension of IPython.

`pytest_plugin.py` is what pytest loads; `comm_budgets.py` does its work. `notebook.py` is the
extension of IPython. Editors are served by the command (cli/editor).
"""
