"""Op declarations: a folder for each kind, one subject a file; `dialect.py` imports them all.

Read `rules.py` (rule text, typing, batch dimensions), then one folder, `elementwise/declaration.py`
first; `derivatives.py` is what derivatives and batching are written with, `emitting.py` what
emitters of per-device equations are, `gather_numbers.py` the dimension numbers of gathers that both
use. All declarations have the columns of `ir/op.py`, in its order.
"""
