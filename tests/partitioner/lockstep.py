"""A tiny interpreter: every device runs the per-device program in step, with loops and no tricks.

Collectives are written out here once more, on a dict of blocks by device coordinates, so that the
package's own exchange code is not what checks it. After each equation the interpreter asserts that
the devices which the type says hold equal blocks do hold equal blocks. A traced program without
manual regions runs on one device that holds whole values: that is the reference.
"""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from shardtrace.ir.kernels.key_data import storage_dtype
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.program import Atom, Equation, Literal, Program, Var
from shardtrace.ir.shardings.tiling import tile_index
from shardtrace.ir.spec import axis_factor
from shardtrace.ir.types import ArrayType
from shardtrace.partitioner.pipeline import Partitioned, partition

from ..comparisons import same_bits

Device = tuple[int, ...]
Blocks = dict[Device, np.ndarray]
NARROW = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
OF_OPERANDS = ("all_gather_dimension", "scatter_dimension", "tiled")   # of variadic ones
COMBINED = {"pmax": np.maximum, "pmin": np.minimum, "pprod": np.multiply, "pand": np.bitwise_and,
            "por": np.bitwise_or, "pxor": np.bitwise_xor}


# -- whole values and blocks ------------------------------------------------------------------

def devices_of(mesh: AbstractMesh) -> list[Device]:
    return list(itertools.product(*map(range, mesh.axis_sizes)))


def shard(value: np.ndarray, aval: ArrayType, seed: int = 0) -> Blocks:
    """The block that each device holds of a whole value; random terms over pending axes."""
    mesh, pending = aval.mesh, aval.sharding.spec.unreduced
    used = pending.union(*aval.entries)
    rng = np.random.default_rng(seed)
    out: Blocks = {}
    terms: dict[Device, np.ndarray] = {}
    total: dict[Device, np.ndarray] = {}
    for device in devices_of(mesh):
        index = tile_index(mesh.shape, aval.entries, device)
        block = value[tuple(slice(i * n, (i + 1) * n)
                            for i, n in zip(index, aval.local_shape(), strict=True))]
        if pending:
            names = list(zip(device, mesh.axis_names, mesh.axis_sizes, strict=True))
            own = tuple(c for c, a, _ in names if a in used)          # copies are equal
            tile = tuple(c for c, a, _ in names if a in used - pending)
            if own not in terms:
                last = all(c == n - 1 for c, a, n in names if a in pending)
                term = block - total.get(tile, 0) if last else rng.integers(-4, 4, block.shape)
                terms[own] = np.asarray(term, value.dtype)
                total[tile] = total.get(tile, 0) + terms[own]
            block = terms[own]
        out[device] = block
    return out


def unshard(blocks: Blocks, aval: ArrayType) -> np.ndarray:
    """The whole value; blocks that are copies must be equal, pending terms are added up."""
    mesh, pending = aval.mesh, aval.sharding.spec.unreduced
    out = np.zeros(aval.shape, next(iter(blocks.values())).dtype)
    seen: dict[Any, np.ndarray] = {}
    used = [axis_factor(a, mesh.shape) for a in sorted(pending.union(*aval.entries))]
    for device in devices_of(mesh):
        index = tile_index(mesh.shape, aval.entries, device)
        where = tuple(slice(i * n, (i + 1) * n)
                      for i, n in zip(index, aval.local_shape(), strict=True))
        place = dict(zip(mesh.axis_names, device, strict=True))
        key = tuple(place[base] // after % size for base, _, size, after in used)
        if key in seen:
            if not same_bits(blocks[device], seen[key]):
                np.testing.assert_array_equal(blocks[device], seen[key])
            continue
        seen[key] = blocks[device]
        if pending:
            out[where] += blocks[device]
        else:
            out[where] = blocks[device]
    return out


def coordinate(mesh: AbstractMesh, device: Device, axis: str) -> int:
    """The device's coordinate along an axis or a part of one."""
    base, _, size, rest = axis_factor(axis, mesh.shape)
    return device[mesh.axis_names.index(base)] // rest % size


def run_local(program: Program, args: list[np.ndarray]) -> list[np.ndarray]:
    """Run a LOCAL program on whole arguments: shard, run in step, unshard."""
    mesh = program.mesh
    held = [shard(np.asarray(x), t, i)
            for i, (x, t) in enumerate(zip(args, program.global_in, strict=True))]
    results = Lockstep(mesh, devices_of(mesh)).program(program, held)
    return [unshard(r, t) for r, t in zip(results, program.global_out, strict=True)]


def evaluate(program: Program, args: list[np.ndarray]) -> list[np.ndarray]:
    """The reference: the program on whole values."""
    results = Lockstep(None, [()]).program(program, [{(): np.asarray(x)} for x in args])
    return [r[()] for r in results]


# -- the interpreter --------------------------------------------------------------------------

class Lockstep:
    def __init__(self, mesh: AbstractMesh | None, devices: list[Device]) -> None:
        self.mesh = mesh
        self.devices = devices

    def program(self, program: Program, args: list[Blocks]) -> list[Blocks]:
        env: dict[Var, Blocks] = dict(zip(program.invars, args, strict=True))
        for var, value in program.consts:
            env[var] = {d: np.asarray(value) for d in self.devices}
        for eqn in program.eqns:
            results = self.equation(eqn, [self.read(env, a) for a in eqn.invars])
            for var, blocks in zip(eqn.outvars, results, strict=True):
                self.check(eqn, var, blocks)
                env[var] = blocks
        return [self.read(env, a) for a in program.outvars]

    def read(self, env: dict[Var, Blocks], atom: Atom) -> Blocks:
        if isinstance(atom, Literal):
            return {d: np.asarray(atom.val) for d in self.devices}
        return env[atom]

    def check(self, eqn: Equation, var: Var, blocks: Blocks) -> None:
        for block in blocks.values():
            assert block.shape == var.aval.shape, (eqn, block.shape)
            assert block.dtype == storage_dtype(var.aval.dtype), (eqn, block.dtype)
        if self.mesh is None:
            return
        seen: dict[Device, np.ndarray] = {}
        for device, block in blocks.items():
            key = tuple(self.place(device, a) for a in sorted(var.aval.varying))
            first = seen.setdefault(key, block)
            if block is not first and not same_bits(block, first):
                np.testing.assert_array_equal(block, first, err_msg=f"{eqn} is said not to vary")

    def equation(self, eqn: Equation, operands: list[Blocks]) -> list[Blocks]:
        op, params = eqn.op, eqn.params
        region = getattr(self, f"run_{op.name}", None)
        if region is not None:
            return region(eqn, operands)
        if op.collective is not None or op.name == "axis_index":
            one = op.name.removeprefix("variadic_")
            each = [operands] if one == op.name else [[x] for x in operands]
            own = () if one == op.name else OF_OPERANDS
            return [self.collective(one, {k: v[i] if k in own else v for k, v in params.items()}, x)
                    for i, x in enumerate(each)]
        out: list[Blocks] = [{} for _ in eqn.outvars]
        for device in self.devices:
            arrays = [x[device] for x in operands]
            if op.arithmetic:
                arrays = [x.astype(np.float32) if x.dtype.name in NARROW else x for x in arrays]
            results = op.evaluate(0, *arrays, **params)
            for var, blocks, result in zip(eqn.outvars, out,
                                           results if op.multiple_results else [results],
                                           strict=True):
                blocks[device] = np.asarray(result).astype(storage_dtype(var.aval.dtype))
        return out

    # -- collectives --------------------------------------------------------------------------

    def place(self, device: Device, axis: str) -> int:
        """The device's coordinate along an axis or a part of one."""
        assert self.mesh is not None
        return coordinate(self.mesh, device, axis)

    def group(self, device: Device, axes: tuple[str, ...]) -> tuple[list[Device], int]:
        assert self.mesh is not None
        parts = [axis_factor(a, self.mesh.shape) for a in axes]
        members = []
        for c in itertools.product(*(range(size) for _, _, size, _ in parts)):
            member = list(device)
            for (base, _, size, rest), k in zip(parts, c, strict=True):
                at = self.mesh.axis_names.index(base)
                member[at] += (k - member[at] // rest % size) * rest
            members.append(tuple(member))
        assert all(m in self.devices for m in members), "a group is split by a predicate"
        return members, members.index(device)

    def collective(self, name: str, p: dict[str, Any], operands: list[Blocks]) -> Blocks:
        axes = p.get("axes", p.get("axis_name"))
        axes = axes if isinstance(axes, tuple) else (axes,)
        x = operands[0] if operands else {}
        out: Blocks = {}
        for device in self.devices:
            members, i = self.group(device, axes)
            n = len(members)
            if name == "axis_index":
                out[device] = np.asarray(i, np.int32)
            elif name in ("psum_invariant", "psum"):
                blocks = np.stack([x[m] for m in members])
                out[device] = blocks.any(0) if blocks.dtype == bool else blocks.sum(
                    0, dtype=blocks.dtype)
            elif name.removesuffix("_scatter") in COMBINED:
                combine = COMBINED[name.removesuffix("_scatter")]
                total = combine.reduce([x[m] for m in members], dtype=x[device].dtype)
                out[device] = total if name in COMBINED else np.split(
                    total, n, p["scatter_dimension"])[i]
            elif name in ("all_gather", "all_gather_invariant"):
                join = np.concatenate if p["tiled"] else np.stack
                out[device] = join([x[m] for m in members], p["all_gather_dimension"])
            elif name == "reduce_scatter":
                total = np.stack([x[m] for m in members]).sum(0, dtype=x[device].dtype)
                parts = np.split(total, n, p["scatter_dimension"])
                out[device] = parts[i] if p["tiled"] else parts[i].squeeze(p["scatter_dimension"])
            elif name == "all_slice":
                out[device] = np.split(x[device], n, p["dimension"])[i]
            elif name == "all_to_all":
                assert p["tiled"]
                out[device] = np.concatenate(
                    [np.split(x[m], n, p["split_axis"])[i] for m in members], p["concat_axis"])
            elif name == "ppermute":
                source = {d: s for s, d in p["perm"]}
                out[device] = (x[members[source[i]]] if i in source
                               else np.zeros_like(x[device]))
            elif name == "assume_invarying":
                out[device] = x[members[0]]
            elif name == "exchange_rows":
                out[device] = self.rows([x[m] for m in members], i, p)
            elif name == "retile":
                out[device] = self.retiled(x, members, i, p)
            else:
                raise AssertionError(f"no collective {name}")
        return out

    def rows(self, blocks: list[np.ndarray], i: int, p: dict[str, Any]) -> np.ndarray:
        """What member i wants, cut out of the whole sources."""
        d, starts = p["dimension"], np.cumsum((0, *p["parts"]))
        whole = [np.concatenate([np.take(b, range(starts[k], starts[k] + n), d) for b in blocks], d)
                 for k, n in enumerate(p["parts"])]
        out = []
        for step, offset, count, pieces, *apart in p["wanted"]:
            first = (i * step + offset) // (apart or [1])[0]
            for place in range(first, first + count):
                row = np.zeros_like(np.take(blocks[0], [0], d))
                for begin, end, part, start, stride in pieces:
                    if begin <= place < end:
                        row = np.take(whole[part], [start + (place - begin) * stride], d)
                out.append(row)
        return np.concatenate(out, d)

    def retiled(self, x: Blocks, members: list[Device], i: int, p: dict[str, Any]) -> np.ndarray:
        """The new tile of member i, cut out of the value that all members have together."""
        def tile(tiling: Any, at: dict[str, int], shape: Any) -> tuple[slice, ...]:
            where = []
            for axes, n in zip(tiling, shape, strict=True):
                index = 0
                for a in axes:
                    index = index * size[a] + at[a]
                where.append(slice(index * n, (index + 1) * n))
            return tuple(where)

        size = dict(zip(p["axes"], p["axis_sizes"], strict=True))
        places = [dict(zip(p["axes"], c, strict=True))
                  for c in itertools.product(*map(range, p["axis_sizes"]))]
        block = x[members[0]].shape
        counts = [[math.prod(size[a] for a in axes) for axes in p[which]]
                  for which in ("source", "target")]
        whole = np.zeros([n * k for n, k in zip(block, counts[0], strict=True)],
                         x[members[0]].dtype)
        for member, at in zip(members, places, strict=True):
            whole[tile(p["source"], at, block)] = x[member]
        new = [n // k for n, k in zip(whole.shape, counts[1], strict=True)]
        return whole[tile(p["target"], places[i], new)]

    # -- programs inside ----------------------------------------------------------------------

    def run_jit(self, eqn: Equation, operands: list[Blocks]) -> list[Blocks]:
        return self.program(eqn.params["jaxpr"], operands)

    def run_scan(self, eqn: Equation, operands: list[Blocks]) -> list[Blocks]:
        p = eqn.params
        nc, nk, length = p["num_consts"], p["num_carry"], p["length"]
        consts, carry, xs = operands[:nc], operands[nc:nc + nk], operands[nc + nk:]
        stacked: list[list[Blocks]] = [[] for _ in eqn.outvars[nk:]]
        order = range(length - 1, -1, -1) if p["reverse"] else range(length)
        for i in order:
            results = self.program(p["jaxpr"], [
                *consts, *carry, *({d: b[i] for d, b in x.items()} for x in xs)])
            carry = results[:nk]
            for held, y in zip(stacked, results[nk:], strict=True):
                held.append(y)
        if p["reverse"]:
            stacked = [held[::-1] for held in stacked]
        ys = [{d: np.stack([y[d] for y in held]) if held else
               np.zeros(var.aval.shape, var.aval.dtype) for d in self.devices}
              for held, var in zip(stacked, eqn.outvars[nk:], strict=True)]
        return [*carry, *ys]

    def run_while(self, eqn: Equation, operands: list[Blocks]) -> list[Blocks]:
        p = eqn.params
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        carry = [dict(x) for x in operands[nc + nb:]]
        active = list(self.devices)
        while True:
            some = Lockstep(self.mesh, active)
            here = [{d: x[d] for d in active} for x in (*operands[:nc + nb], *carry)]
            going = some.program(p["cond_jaxpr"], [*here[:nc], *here[nc + nb:]])[0]
            active = [d for d in active if going[d]]
            if not active:
                return carry
            some = Lockstep(self.mesh, active)
            here = [{d: x[d] for d in active} for x in (*operands[nc:nc + nb], *carry)]
            for old, new in zip(carry, some.program(p["body_jaxpr"], here), strict=True):
                old.update(new)

    def run_cond(self, eqn: Equation, operands: list[Blocks]) -> list[Blocks]:
        branches = eqn.params["branches"]
        out: list[Blocks] = [{} for _ in eqn.outvars]
        for b, branch in enumerate(branches):
            mine = [d for d in self.devices
                    if min(max(int(operands[0][d]), 0), len(branches) - 1) == b]
            if mine:
                args = [{d: x[d] for d in mine} for x in operands[1:]]
                for held, new in zip(out, Lockstep(self.mesh, mine).program(branch, args),
                                     strict=True):
                    held.update(new)
        return out


def close(a: np.ndarray, b: np.ndarray, message: object = "") -> None:
    """Equal, but for the order of sums where dtypes are inexact. message: printed if not."""
    if same_bits(a, b):
        return
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
    if a.dtype.kind in "fc" or a.dtype.name in NARROW:
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        scale = 2e-2 if a.dtype.name in NARROW else 2e-5
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=scale, atol=scale,
                                   err_msg=str(message))
    else:
        np.testing.assert_array_equal(a, b, err_msg=str(message))


# -- partitioned programs beside whole ones ----------------------------------------------------

def partitioned(program: Program, specs: Any = None, outs: Any = None, *, check: bool = True,
                seed: int = 0) -> Partitioned:
    """A program partitioned. check: both last stages give what it gives, on small integers."""
    done = partition(program, mesh=program.mesh, in_shardings=specs, out_shardings=outs)
    if check:
        rng = np.random.default_rng(seed)
        args = [rng.integers(-5, 6, v.aval.shape).astype(v.aval.dtype) for v in program.invars]
        wanted = evaluate(program, args)
        for stage in ("local", "optimized"):
            for got, want in zip(run_local(done.stages[stage], args), wanted, strict=True):
                close(got, want)
    return done
