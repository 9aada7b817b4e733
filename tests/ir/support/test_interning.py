"""Tables of interned objects: one object per key, as long as somebody has it."""
from __future__ import annotations

from shardtrace.ir.support.interning import InternTable


class Thing:
    pass


def test_the_first_object_of_a_key_stays_while_somebody_has_it():
    table: InternTable[Thing] = InternTable()
    one = Thing()
    assert table.get("key") is None
    assert table.add("key", one) is one
    assert table.add("key", Thing()) is one
    assert table.get("key") is one and len(table) == 1
    del one
    assert table.get("key") is None and len(table) == 0
