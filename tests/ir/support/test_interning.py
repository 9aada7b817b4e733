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


def test_an_object_that_goes_late_leaves_its_successor_alone():
    """Another thread may put a new object in its place before the table hears of the old one."""
    table: InternTable[Thing] = InternTable()
    old = Thing()
    table.add("key", old)
    entry = table.entries["key"]
    del old
    new = table.add("key", Thing())
    table._removed(entry)
    assert table.get("key") is new
