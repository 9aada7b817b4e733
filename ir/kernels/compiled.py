"""Loops compiled by LLVM, where `llvmlite` is installed: for random numbers and elementwise chains.

Each ufunc of numpy is a pass over the cache. A hash of Threefry is 112 of them, a normal number 200
more; in one loop, whose numbers stay in registers, they take a tenth of the time. A `Loop` is made
from a function of its elements, which is called once with `Value`s and writes the instructions:

    Loop(lambda x, y: (x * y + 1,), "float float", "float")    ->    %v4 = fmul <32 x float> ...

They are numpy's operations in numpy's order, so the numbers are the same to the last bit. Loading
LLVM and compiling takes as long as some million hashes in numpy, so a loop is compiled only after
numpy has computed `ENOUGH` elements.
"""
from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..support.lazy import lazy_import

llvm = lazy_import("llvmlite.binding")

ENOUGH = 1 << 22                # elements that numpy computes before anything is compiled
_WIDTH = 32                     # elements at a time: two registers of AVX-512
_SUFFIXES = {"half": "f16", "float": "f32", "double": "f64"}    # of LLVM's functions
_STORED = {"i1": "i8"}          # types that are others in memory
_DATA = object.__basicsize__    # where an array, as an object, says where its data are
FLAT, NUMBER, ROW, COLUMN = "flat", "number", "row", "column"


class Value:
    """Numbers of the elements that a loop computes at a time. kind: LLVM's type of one of them."""

    __slots__ = ("kind", "lines", "name", "width")

    def __init__(self, lines: list[str], width: int, kind: str, text: str) -> None:
        self.lines, self.width, self.kind = lines, width, kind
        self.name = f"%v{len(lines)}"
        lines.append(f"{self.name} = {text}")

    @property
    def is_integer(self) -> bool:
        """Is it an integer, or a truth value?"""
        return self.kind.startswith("i")

    @property
    def type(self) -> str:
        return f"<{self.width} x {self.kind}>"

    def number(self, x: Any, kind: str) -> Value:
        """A number of some type, for all elements."""
        text = f"<{self.width} x {kind}>"
        return self.made(f"bitcast {text} {_number(x, kind)} to {text}", kind)

    def made(self, text: str, kind: str = "") -> Value:
        """What an instruction gives."""
        return Value(self.lines, self.width, kind or self.kind, text)

    def operand(self, x: Any) -> str:
        """The text of a value, or of a number for all elements."""
        return x.name if isinstance(x, Value) else _number(x, self.kind)

    def _with(self, instruction: str, other: Any, kind: str = "") -> Value:
        return self.made(f"{instruction} {self.type} {self.name}, {self.operand(other)}", kind)

    def __add__(self, other: Any) -> Value:
        return self._with("add" if self.is_integer else "fadd", other)

    def __sub__(self, other: Any) -> Value:
        return self._with("sub" if self.is_integer else "fsub", other)

    def __mul__(self, other: Any) -> Value:
        return self._with("mul" if self.is_integer else "fmul", other)

    def __truediv__(self, other: Any) -> Value:
        return self._with("fdiv", other)

    def __xor__(self, other: Any) -> Value:
        return self._with("xor", other)

    def __and__(self, other: Any) -> Value:
        return self._with("and", other)

    def __or__(self, other: Any) -> Value:
        return self._with("or", other)

    def __lshift__(self, other: Any) -> Value:
        return self._with("shl", other)

    def __rshift__(self, other: Any) -> Value:
        """Of signed integers."""
        return self._with("ashr", other)

    def __neg__(self) -> Value:
        if self.is_integer:
            return self.made(f"sub {self.type} zeroinitializer, {self.name}")
        return self.made(f"fneg {self.type} {self.name}")

    def call(self, function: str, *others: Any) -> Value:
        """A function of LLVM that has one for each type: `fabs`, `sqrt`, `fshl` (rotates)."""
        given = ", ".join(f"{self.type} {self.operand(x)}" for x in (self, *others))
        suffix = _SUFFIXES.get(self.kind, self.kind)
        return self.made(f"call {self.type} @llvm.{function}.v{self.width}{suffix}({given})")

    def to(self, kind: str, instruction: str) -> Value:
        """Converted, or looked at, as another type."""
        return self.made(f"{instruction} {self.type} {self.name} to <{self.width} x {kind}>", kind)

    def choose(self, test: str, other: Any, x: Value, y: Any) -> Value:
        """x where a comparison holds (LLVM's name of it), else y."""
        return self.compared(test, other).select(x, y)

    def compared(self, test: str, other: Any) -> Value:
        """Where a comparison holds (LLVM's name of it)."""
        instruction = "icmp" if self.is_integer else "fcmp"
        return self._with(f"{instruction} {test}", other, "i1")

    def select(self, x: Any, y: Any) -> Value:
        """x where this is true, else y, one of which is no number."""
        like = x if isinstance(x, Value) else y
        return like.made(f"select {self.type} {self.name}, {like.type} {like.operand(x)}, "
                         f"{like.type} {like.operand(y)}")


def _number(x: Any, kind: str) -> str:
    text = (str(int(x)) if kind.startswith("i") else
            f"0xH{struct.pack('>e', float(x)).hex()}" if kind == "half" else
            f"0x{struct.pack('>d', float(x)).hex()}")
    return f"splat ({kind} {text})"


class Loop:
    """The loop of a function of elements over contiguous arrays.

    reads, writes: LLVM's types of the arrays' elements, one after the other: i32, float; i1 are
    numpy's booleans. forms: what is read of each of the first arrays: an element for each of the
    loop (FLAT, as of the others), or one for all (NUMBER), for a row (COLUMN), for a place in each
    row (ROW). Rows of the former may lie apart. The loop is called with the arrays that it reads,
    then those that it writes.
    """

    def __init__(self, function: Callable[..., Sequence[Value]], reads: str, writes: str,
                 forms: Sequence[str] = ()) -> None:
        self._function, self._reads, self._writes = function, reads.split(), writes.split()
        self._forms = [*forms, *[FLAT] * (len(self._reads) - len(forms))]
        self._run: Any = None
        self._engine: Any = None            # owns the code

    def pays(self, elements: int) -> bool:
        """Is the loop there for so many elements, or worth compiling now?"""
        return self._run is not None or _SEEN.reach(elements) and self.compiled()

    def __call__(self, *arrays: np.ndarray) -> None:
        self.over(1, arrays[-1].size, *arrays)

    def over(self, rows: int, columns: int, *arrays: np.ndarray,
             strides: Sequence[int] = ()) -> None:
        """Compute so many rows of so many elements. strides: how many elements apart the rows of
        each array lie that is read, if not next to each other; of FLAT ones."""
        self._run(*map(id, arrays), *(strides or [columns] * len(self._reads)), rows, columns)

    def compiled(self, wait: bool = False) -> bool:
        """Compile it; say whether it is there. wait: for another thread that compiles just now."""
        if self._run is None and _LOCK.acquire(blocking=wait):
            try:
                if self._run is None and not _SEEN.in_vain and _holds_address():
                    self._engine, address = _engine_of(self.text())
                    arrays = [ctypes.c_void_p] * (len(self._reads) + len(self._writes))
                    sizes = [ctypes.c_int64] * (len(self._reads) + 2)
                    self._run = ctypes.CFUNCTYPE(None, *arrays, *sizes)(address)
            except (ImportError, OSError):      # it is not installed, or does not run here
                pass
            finally:
                _SEEN.in_vain = self._run is None
                _LOCK.release()
        return self._run is not None

    def text(self) -> str:
        """The loop for LLVM: in each row over many elements at a time, then over each of those
        left.
        """
        kinds = [*self._reads, *self._writes]
        given = "".join([*[f"ptr %x{a}, " for a in range(len(kinds))],
                         *[f"i64 %s{a}, " for a in range(len(self._reads))]])
        lines = [f"define void @loop({given}i64 %rows, i64 %n) {{", "entry:"]
        for a in range(len(kinds)):         # an array is an object, which tells where its data are
            lines += [f"%f{a} = getelementptr i8, ptr %x{a}, i64 {_DATA}",
                      f"%a{a} = load ptr, ptr %f{a}"]
        lines += ["br label %row", "row:", "%r = phi i64 [0, %entry], [%next, %done]",
                  "%first = mul i64 %r, %n"]
        for a, kind in enumerate(kinds):
            at = "%first"
            if a < len(self._reads):
                lines.append(f"%first{a} = mul i64 %r, %s{a}")
                at = {FLAT: f"%first{a}", COLUMN: "%r"}.get(self._forms[a], "0")
            lines.append(f"%b{a} = getelementptr {_STORED.get(kind, kind)}, ptr %a{a}, i64 {at}")
        same = [self._same(lines, a, form) for a, form in enumerate(self._forms)]
        lines.append("br label %test0")
        before, start = "row", "0"
        for k, width in enumerate((_WIDTH, 1)):
            lines += [f"test{k}:", f"%i{k} = phi i64 [{start}, %{before}], [%end{k}, %body{k}]",
                      f"%end{k} = add i64 %i{k}, {width}", f"%fits{k} = icmp ule i64 %end{k}, %n",
                      f"br i1 %fits{k}, label %body{k}, label %{'done' if k else 'test1'}",
                      f"body{k}:"]
            self._body(lines, k, width, same)
            lines.append(f"br label %test{k}")
            before, start = f"test{k}", f"%i{k}"
        return "\n".join([*lines, "done:", "%next = add i64 %r, 1",
                          "%more = icmp ult i64 %next, %rows",
                          "br i1 %more, label %row, label %all", "all:", "ret void", "}", ""])

    def _same(self, lines: list[str], a: int, form: str) -> dict[int, Value]:
        """What all elements of a row read of an array, once for each width."""
        if form in (FLAT, ROW):
            return {}
        one = _loaded(lines, 1, self._reads[a], f"%b{a}")
        return {1: one, _WIDTH: Value(lines, _WIDTH, one.kind, f"shufflevector {one.type} "
                                      f"{one.name}, {one.type} poison, <{_WIDTH} x i32> "
                                      "zeroinitializer")}

    def _body(self, lines: list[str], k: int, width: int, same: Sequence[dict[int, Value]]) -> None:
        values = [same[a][width] if same[a] else
                  _loaded(lines, width, kind, self._place(lines, a, kind, k))
                  for a, kind in enumerate(self._reads)]
        for a, value in enumerate(self._function(*values), len(self._reads)):
            if value.kind in _STORED:
                value = value.to(_STORED[value.kind], "zext")
            at = self._place(lines, a, value.kind, k)
            lines.append(f"store {value.type} {value.name}, ptr {at}, align 1")

    @staticmethod
    def _place(lines: list[str], a: int, kind: str, k: int) -> str:
        lines.append(f"%p{len(lines)} = getelementptr {_STORED.get(kind, kind)}, ptr %b{a}, "
                     f"i64 %i{k}")
        return f"%p{len(lines) - 1}"


def _loaded(lines: list[str], width: int, kind: str, at: str) -> Value:
    stored = _STORED.get(kind, kind)
    value = Value(lines, width, stored, f"load <{width} x {stored}>, ptr {at}, align 1")
    return value if stored == kind else value.to(kind, "trunc")


def _holds_address() -> bool:
    """Do arrays, as objects, hold the address of their data where the loops read it?"""
    x = np.zeros(1)
    return ctypes.c_void_p.from_address(id(x) + _DATA).value == x.ctypes.data


def _engine_of(text: str) -> tuple[Any, int]:
    """What owns the code of a loop, for this processor, and where the code begins."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    if "half" in text and not features.get("f16c", True):
        raise OSError("this processor does not convert float16")
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten())
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    return engine, engine.get_function_address("loop")


class _Seen:
    """What decides on compiling: elements: how many numpy computed that a loop would have. in_vain:
    whether llvmlite was looked for and is not there.
    """

    def __init__(self) -> None:
        self.elements = 0
        self.in_vain = False

    def reach(self, elements: int) -> bool:
        self.elements += elements
        return self.elements >= ENOUGH and not self.in_vain


_SEEN, _LOCK = _Seen(), threading.Lock()
