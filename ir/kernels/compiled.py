"""Loops that LLVM compiles, if `llvmlite` is installed: what random numbers are made of.

Each ufunc of numpy is a pass over the cache. A hash of Threefry is 112 of them, a normal number 200
more; in one loop, whose numbers stay in registers, they take a tenth of the time. A `Loop` is made
of a function of its elements, which is called once with `Value`s; these write the instructions:

    Loop(lambda x, y: (x * y + 1,), "float float", "float")    ->    %v4 = fmul <32 x float> ...

They are numpy's operations in their order, so that the numbers are the same to the last bit. To
load and compile takes as long as some million hashes do in numpy; what comes after these pays.
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
_SUFFIXES = {"i32": "i32", "float": "f32", "double": "f64"}


class Value:
    """Numbers of the elements that a loop computes at a time. kind: LLVM's type of one of them."""

    __slots__ = ("kind", "lines", "name", "width")

    def __init__(self, lines: list[str], width: int, kind: str, text: str) -> None:
        self.lines, self.width, self.kind = lines, width, kind
        self.name = f"%v{len(lines)}"
        lines.append(f"{self.name} = {text}")

    @property
    def type(self) -> str:
        return f"<{self.width} x {self.kind}>"

    def made(self, text: str, kind: str = "") -> Value:
        """What an instruction gives."""
        return Value(self.lines, self.width, kind or self.kind, text)

    def operand(self, x: Any) -> str:
        """The text of a value, or of a number for all elements."""
        if isinstance(x, Value):
            return x.name
        text = str(x) if self.kind == "i32" else f"0x{struct.pack('>d', float(x)).hex()}"
        return f"splat ({self.kind} {text})"

    def _with(self, instruction: str, other: Any) -> Value:
        return self.made(f"{instruction} {self.type} {self.name}, {self.operand(other)}")

    def __add__(self, other: Any) -> Value:
        return self._with("add" if self.kind == "i32" else "fadd", other)

    def __sub__(self, other: Any) -> Value:
        return self._with("sub" if self.kind == "i32" else "fsub", other)

    def __mul__(self, other: Any) -> Value:
        return self._with("fmul", other)

    def __truediv__(self, other: Any) -> Value:
        return self._with("fdiv", other)

    def __xor__(self, other: Any) -> Value:
        return self._with("xor", other)

    def __and__(self, other: Any) -> Value:
        return self._with("and", other)

    def __rshift__(self, other: int) -> Value:
        """Of signed integers."""
        return self._with("ashr", other)

    def __neg__(self) -> Value:
        return self.made(f"fneg {self.type} {self.name}")

    def call(self, function: str, *others: Any) -> Value:
        """A function of LLVM that has one for each type: `fabs`, `sqrt`, `fshl` (rotates)."""
        given = ", ".join(f"{self.type} {self.operand(x)}" for x in (self, *others))
        return self.made(f"call {self.type} @llvm.{function}.v{self.width}{_SUFFIXES[self.kind]}"
                         f"({given})")

    def to(self, kind: str, instruction: str) -> Value:
        """Converted, or looked at, as another type."""
        return self.made(f"{instruction} {self.type} {self.name} to <{self.width} x {kind}>", kind)

    def choose(self, test: str, other: Any, x: Value, y: Any) -> Value:
        """x where a comparison of floats holds (LLVM's name of it), else y."""
        holds = self.made(f"fcmp {test} {self.type} {self.name}, {self.operand(other)}", "i1")
        return x.made(f"select {holds.type} {holds.name}, {x.type} {x.name}, "
                      f"{x.type} {x.operand(y)}")


class Loop:
    """The loop of a function of elements over flat, contiguous arrays.

    reads, writes: LLVM's types of the arrays' elements, one after the other: i32, float. numbers:
    how many of the first arrays have one element, for all. The loop is called with the arrays that
    it reads, then those that it writes, the last of which is as long as all.
    """

    def __init__(self, function: Callable[..., Sequence[Value]], reads: str, writes: str,
                 numbers: int = 0) -> None:
        self._function, self._numbers = function, numbers
        self._reads, self._writes = reads.split(), writes.split()
        self._run: Any = None
        self._engine: Any = None            # owns the code

    def pays(self, elements: int) -> bool:
        """Is the loop there for so many elements, or worth compiling now?"""
        return self._run is not None or _SEEN.reach(elements) and self._compiled()

    def __call__(self, *arrays: np.ndarray) -> None:
        self._run(*[x.ctypes.data for x in arrays], arrays[-1].size)

    def _compiled(self) -> bool:
        """Compile it, unless another thread is about to; say whether it is there."""
        if _LOCK.acquire(blocking=False):
            try:
                if self._run is None and not _SEEN.in_vain:
                    self._engine, address = _engine_of(self.text())
                    arrays = [ctypes.c_void_p] * (len(self._reads) + len(self._writes))
                    self._run = ctypes.CFUNCTYPE(None, *arrays, ctypes.c_int64)(address)
            except (ImportError, OSError):      # it is not installed, or does not run here
                _SEEN.in_vain = True
            finally:
                _LOCK.release()
        return self._run is not None

    def text(self) -> str:
        """The loop for LLVM: over many elements at a time, then over each of those left."""
        given = ", ".join(f"ptr %a{k}" for k in range(len(self._reads) + len(self._writes)))
        lines = [f"define void @loop({given}, i64 %n) {{", "entry:", "br label %test0"]
        before, start = "entry", "0"
        for k, width in enumerate((_WIDTH, 1)):
            lines += [f"test{k}:", f"%i{k} = phi i64 [{start}, %{before}], [%end{k}, %body{k}]",
                      f"%end{k} = add i64 %i{k}, {width}", f"%fits{k} = icmp ule i64 %end{k}, %n",
                      f"br i1 %fits{k}, label %body{k}, label %{'done' if k else 'test1'}",
                      f"body{k}:"]
            self._body(lines, k, width)
            lines.append(f"br label %test{k}")
            before, start = f"test{k}", f"%i{k}"
        return "\n".join([*lines, "done:", "ret void", "}", ""])

    def _body(self, lines: list[str], k: int, width: int) -> None:
        values = []
        for a, kind in enumerate(self._reads):
            if a < self._numbers:
                first = Value(lines, 1, kind, f"load <1 x {kind}>, ptr %a{a}, align 4")
                values.append(Value(lines, width, kind, f"shufflevector {first.type} {first.name}, "
                                    f"{first.type} poison, <{width} x i32> zeroinitializer"))
            else:
                at = self._place(lines, a, kind, k)
                values.append(Value(lines, width, kind,
                                    f"load <{width} x {kind}>, ptr {at}, align 4"))
        for a, value in enumerate(self._function(*values), len(self._reads)):
            at = self._place(lines, a, value.kind, k)
            lines.append(f"store {value.type} {value.name}, ptr {at}, align 4")

    @staticmethod
    def _place(lines: list[str], a: int, kind: str, k: int) -> str:
        lines.append(f"%p{len(lines)} = getelementptr {kind}, ptr %a{a}, i64 %i{k}")
        return f"%p{len(lines) - 1}"


def _engine_of(text: str) -> tuple[Any, int]:
    """What owns the code of a loop, for this processor, and where the code begins."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten())
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
