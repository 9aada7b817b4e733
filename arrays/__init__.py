"""The arrays that users hold, and the devices and processes that have them. Imports `ir` only.

`array.py` is the array itself; its data is a `Storage` (storage.py), one numpy array for all
devices (devices.py). Beside it stand how arrays are made (assembly.py), moved (transfer.py), shown
(host_view.py, visualize.py) and taken from other libraries (exchange.py). Several processes, each
with some of the devices, are in processes/.
"""
