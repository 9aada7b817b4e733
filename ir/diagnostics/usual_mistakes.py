"""Common mistakes, looked up by error message: why they fail, and what to write instead.

They serve exceptions that have no diagnostic of their own. Texts can use the named groups of their
pattern. They contain no code: code is only shown if a `Remedy` was tried on the user's own program.
"""
from __future__ import annotations

import functools
import re

from .diagnostic import Help, Remedy

Advice = tuple[tuple[str, ...], tuple[Help, ...]]

_TABLE: tuple[tuple[str, str, Help], ...] = (
    (r"unbound axis name: (?P<axis>\w+)",
     "no `shard_map`, `vmap` or `pmap` around this call has an axis called {axis}",
     "call it within `shard_map` over a mesh with that axis, or `vmap` with `axis_name`; axes of "
     "arrays are numbers"),
    # -- arguments ------------------------------------------------------------------------------
    (r"missing \d+ required (?:positional|keyword-only) arguments?: (?P<names>.*)",
     "the call gives no value for {names}",
     "pass a value for {names}"),
    (r"takes (?P<most>.*) but (?P<given>\d+) (?:was|were) given",
     "the call passes more or fewer operands than the function has parameters",
     "pass as many as it takes, options such as `axis` by their names"),
    (r"unexpected keyword argument (?P<name>'.*?')",
     "there is no parameter called {name}",
     "take the name of one of its parameters; its docstring lists them"),
    (r"requires ndarray or scalar arguments, got <class '(?P<kind>.*?)'> at position (?P<at>\d+)",
     "operand {at} is a {kind}, and only arrays and numbers are operands here",
     Remedy("convert lists and tuples first, with `jnp.asarray`; replace None by an array",
            "operand", (((), "{numpy.asarray}(@)", None),))),
    (r"unsupported operand type\(s\)|not supported between instances",
     "an operator of arrays takes arrays and numbers, and one side here is neither",
     Remedy("convert lists with `jnp.asarray`; test for a missing value before the arithmetic",
            "operand", (((), "{numpy.asarray}(@)", None),))),
    (r"^Error interpreting argument|is not a valid (?:value for jnp.array|JAX (?:array )?"
     r"type)|Unexpected input type for array",
     "arrays hold numbers, booleans and random keys; strings, None and other objects have no "
     "array dtype",
     "pass numbers, or keep other values in Python and out of what is traced (static arguments)"),
    (r"inhomogeneous shape|setting an array element with a sequence",
     "the rows have different lengths, and every dimension of an array has one size",
     "pad the rows to one length, with a mask for what was added, or keep a list of arrays"),
    (r"^data type .* not understood|^Cannot interpret .* as a data type",
     "no dtype has this name",
     "take one of the names of `shardtrace.numpy`: `jnp.float32`, `jnp.bfloat16`, `jnp.int32`"),
    (r"does not accept dtypes .*key<",
     "random keys are no numbers and have no arithmetic",
     "derive further keys with `random.split` or `random.fold_in`"),
    (r"does not accept dtypes (?P<dtypes>.*?)\.?$",
     "the operation is not defined for {dtypes}",
     "convert with `astype` to a dtype that the message names"),
    (r"'(?P<kind>\w+)' object is not callable",
     "a function is expected here, and a {kind} cannot be called",
     "pass the function itself, in the place where the documentation has it"),
    (r"'(?P<kind>\w+)' object is not iterable",
     "a shape or another sequence is expected here, and a {kind} has no elements",
     "write shapes and lists of axes as tuples of integers"),
    (r"array\.view\(\)",
     "`view` reads the elements as another dtype and does not change the shape",
     "use `reshape` for another shape"),
    (r"error calling callback",
     "a function of the host raised, or returned arrays of other shapes or dtypes than were "
     "declared; the message quotes it",
     "declare what it returns with `ShapeDtypeStruct`, and convert its results"),
    (r"[Ee]xpected a callable value, got",
     "a transformation takes the function, and this is the value of a call, or an array",
     "pass the function itself, by its name, and call what comes out on the arguments"),
    (r"has no attribute (?P<name>'.*?')|[Hh]as no attribute (?P<other>\w+)",
     "neither arrays nor what was passed in place of one has that attribute",
     "the class `Array` documents what one has; convert lists and numbers with `jnp.asarray`"),
    (r"concrete values of integer type, got .*Tracer",
     "the size is a traced value, known only when the program runs",
     "mark the argument static (`static_argnums`), or take sizes from `shape`"),
    (r"cannot be interpreted as an integer|Shapes must be 1D sequences of concrete values",
     "a size, a position or a power is an integer here, and this is another type",
     "use `//` in place of `/`, or convert with `int`, and take sizes from `shape`"),
    (r"__delitem__|does not support item deletion",
     "arrays are immutable, and have one size",
     "make a new array with `jnp.delete`, or join slices with `jnp.concatenate`"),
    (r"invalid literal for|could not convert string",
     "a string stands where a number belongs",
     "pass a number, or convert the string first with `int` or `float`"),
    # -- shapes ---------------------------------------------------------------------------------
    (r"Incompatible types for broadcasting|broadcast_in_dim operand dimension sizes",
     "a dimension is repeated only if its size is 1; any other keeps its size",
     "take the sizes of the array, counted from its last dimension, or reduce it first"),
    (r"Incompatible shapes for broadcasting|got incompatible shapes for broadcasting",
     "two sizes of a dimension go together if they are equal or one of them is 1, counted from "
     "the last dimension",
     "insert a dimension of size 1 where one is missing, with `jnp.expand_dims`, or bring the "
     "operands to one shape"),
    (r"contracting dimensions to have the same shape, got \((?P<a>\d+).*?\) and \((?P<b>\d+)",
     "a product sums over one dimension of each operand: here they have sizes {a} and {b}",
     "transpose an operand with `.T`, or name the dimensions with `jnp.einsum`"),
    (r"^Incompatible (?:types|shapes) for matmul",
     "the last dimension on the left and the last but one on the right are summed, and dimensions "
     "before them go together if they are equal or one of them is 1",
     "transpose or reshape an operand, or name the dimensions with `jnp.einsum`"),
    (r"matmul input operand .* must have ndim",
     "`@` needs a dimension to sum over, and a scalar has none",
     "multiply by a number with `*`"),
    (r"cannot reshape array of shape (?P<have>\(.*?\)) \(size (?P<n>\d+)\) into shape .* "
     r"\(size (?P<m>\d+)\)",
     "a reshape keeps every element: {n} are there, and the new shape has {m}",
     "choose sizes whose product is {n}; -1 stands for the size that is left over"),
    (r"only specify one unknown axis size",
     "-1 is worked out from the other sizes, so two of them are open",
     "give all sizes but one"),
    (r"(?:Size of label|einsum|subscript).*(?:does not match|operands?|subscript)|Output character",
     "in einsum each letter stands for one size, and each operand has as many letters as "
     "dimensions",
     "write one group of letters an operand, separated by commas, with the result's letters taken "
     "from theirs, behind `->`"),
    (r"Cannot (?:concatenate|stack) arrays|All input arrays must have the same shape",
     "all dimensions but the joined one must have equal sizes, and the ranks must be equal",
     "reshape or pad first, or join along the dimension in which the arrays differ"),
    (r"[Nn]eed at least one array|must have a non-zero number of arrays",
     "there is nothing in the sequence",
     "pass at least one array; build an empty result with `jnp.zeros`"),
    (r"does not result in an equal division",
     "the size is no multiple of the number of parts",
     "choose a divisor, or `jnp.array_split`, whose parts may differ in size"),
    (r"permutation isn't a permutation|axes don't match",
     "a transposition names each dimension once",
     "list every dimension from 0 to ndim - 1 exactly once"),
    (r"axis (?P<axis>-?\d+) is out of bounds for array of dimension (?P<ndim>\d+)",
     "an array of {ndim} dimensions has no axis {axis}: they are counted from 0, or back from -1",
     "take a dimension that the array has (`ndim` counts them), or add one with `jnp.expand_dims`"),
    (r"duplicate value in 'axis'|repeated axis|axes must be unique",
     "an axis is named twice, perhaps once by its negative number",
     "name each axis once"),
    (r"squeeze out which has size not equal to one",
     "only dimensions of size 1 can be dropped without losing elements",
     "pick one of its elements by an index, or reduce it, such as with `sum`"),
    (r"dimension numbers to be nonnegative and less than",
     "a dimension number names a dimension that the operand does not have",
     "use numbers from 0 to below `ndim`"),
    (r"negative dimensions|must be non-?negative|cannot have negative|nonnegative",
     "a size counts elements, so it is 0 or more", "give sizes of 0 or more"),
    (r"0-d array|unsized object|no leading axis",
     "a scalar has no dimension to go over",
     "add one with `jnp.expand_dims`, or pass an array with dimensions"),
    (r"must be a scalar", "one value is needed, and the array has dimensions",
     "pick an element by its index, or reduce the array, such as with `any` or `sum`"),
    # -- indexing -------------------------------------------------------------------------------
    (r"arrays are immutable",
     "arrays are values that never change, so that programs can be traced and sharded",
     Remedy("take the result of an update, from the property `at`, which has methods `set`, `add`, "
            "`multiply`, `min` and `max`", "update")),
    (r"string indexing",
     "an array has positions, no names",
     "index by integers, slices or masks; hold named arrays in a dict"),
    (r"Indexer must have integer or boolean type",
     "positions are integers, and these are of another dtype",
     "convert with `astype`, or round first"),
    (r"Too many indices|single ellipsis",
     "an index has at most one entry a dimension, and at most one `...`",
     "drop entries, or add dimensions with `None`"),
    (r"non-tuple sequence",
     "a list as an index is ambiguous between several positions and several dimensions",
     Remedy("make the list an array, with `jnp.array`, for positions; pass a tuple for one entry a "
            "dimension", "index", (((), "{numpy.array}(@)", None),))),
    (r"boolean index did not match",
     "a mask has the sizes of the dimensions that it picks from",
     "make the mask from the array itself, by comparing it, or slice it to the same size"),
    (r"slice step cannot be zero", "a step of 0 never gets to the end",
     "use a step of 1 or more, or negative ones to go backwards"),
    (r"^slice slice_sizes|Length of slice indices",
     "a dynamic slice has one start and one size a dimension, none larger than the operand",
     "give a start and a size for each dimension, no size larger than the dimension"),
    (r"padding mode", "there is no mode of that name",
     "use a mode of `numpy.pad`: 'constant', 'edge', 'reflect', 'symmetric', 'wrap', 'mean' ..."),
    (r"(?:gather|scatter) mode", "there is no mode of that name",
     "`mode` says what happens out of bounds: 'fill' or 'drop', 'clip', 'promise_in_bounds'"),
    # -- values ---------------------------------------------------------------------------------
    (r"truth value of an .*array",
     "an `if`, `while`, `and`, `or` and `not` need one boolean, and the array has several",
     "say which is meant: `any`, `all`, or elementwise `jnp.where`, `&`, `|`, `~`"),
    (r"Only (?:integer )?scalar arrays can be converted",
     "a Python number is one element, and the array has several, or is of another dtype",
     "pick an element by its index, reduce, or convert the whole with `astype`"),
    (r"has been deleted|deleted or donated",
     "its memory was given away: `delete` was called on it, or it was passed to a function with "
     "`donate_argnums`",
     "use the result of that call from there on, under the same name, or do not donate this "
     "argument"),
    # -- control flow ---------------------------------------------------------------------------
    (r"scan got (?:no values|value|values|`length`)",
     "a scan goes over the leading dimension of all its `xs`, which have one length",
     "pass arrays with equal leading sizes; without any, give `length` and pass None"),
    (r"^scan body output must be a pair",
     "each step gives two things: the next carry, and what is stacked over the steps",
     "return a pair, with None for what is not needed"),
    (r"^Branch index must",
     "`switch` takes one integer, the number of the branch",
     "pass an integer scalar; `jnp.where` and `jnp.select` choose elementwise"),
    (r"^cond predicate|^Pred must",
     "the predicate of `cond` is one boolean",
     "pass a comparison, reduced with `any` or `all`; `jnp.where` chooses elementwise"),
    (r"Empty branch sequence", "there is no branch to take", "pass at least one function"),
    (r"lower and upper arguments to fori_loop",
     "the counter has one type, and the bounds have two",
     "make both bounds integers"),
    # -- transformations ------------------------------------------------------------------------
    (r"Gradient only defined for scalar-output functions",
     "a gradient is the derivative of one number, and the function returns something else",
     "return a scalar, such as from `jnp.sum` or `jnp.mean`, or use `jacrev` or `vjp`"),
    (r"requires real- or complex-valued (?:inputs|outputs)|input dtype that is a sub-dtype of "
     r"np\.inexact|inputs? must be real|requires real-valued",
     "integers and booleans have no derivative",
     "pass floats (`astype` converts arrays), or differentiate with respect to others with "
     "`argnums`; with `allow_int` they get empty gradients"),
    (r"primal and tangent|different primal and tangent|for argument to VJP function",
     "derivatives go with their values: same structure, shape and dtype (integers take float0)",
     "make them with `jnp.ones_like` and pass both as tuples"),
    (r"^vmap ",
     "vmap takes one dimension of each mapped argument, all of one size; `in_axes` has an entry "
     "for each argument, None for what is not mapped",
     "pass arguments with equal sizes along `in_axes`, or map fewer of them, with None in "
     "`in_axes`"),
    (r"^Jitted function has|with respect to argnums",
     "it names an argument that the function has not",
     "positions count from 0; names are those of the definition"),
    (r"hashable|unhashable",
     "static arguments are part of the key under which a program is kept, so they are hashable",
     "pass a tuple in place of a list, or do not mark the argument static if it is an array"),
    (r"^Custom VJP fwd rule .* must produce a pair",
     "the forward rule gives the result and what the backward rule needs",
     "return both as a pair, with None where nothing is needed"),
    (r"^Custom VJP bwd rule",
     "the backward rule gives a cotangent for each argument of the function",
     "return a tuple with an entry for each argument, of its structure, or None"),
    (r"No (?:VJP|JVP) defined",
     "a function with derivatives of its own has them from `defjvp` or `defvjp`",
     "give the rules before it is differentiated"),
    (r"Argument types differ",
     "a compiled program takes the types that it was lowered for",
     "lower it again for these types, or call the jitted function itself"),
    # -- keys -----------------------------------------------------------------------------------
    (r"PRNG implementation", "there is no generator of that name",
     "take a name that the message lists"),
    (r"PRNG key|key_data",
     "random functions take a key, made once and split",
     Remedy("make one with `random.key` from an integer, and new ones with `random.split`",
            "operand", (((), "{random.key}(@)", None),))),
    (r"larger sample",
     "without replacement no element is drawn twice",
     "draw fewer, or let them be drawn again, with `replace`"),
    # -- pytrees --------------------------------------------------------------------------------
    (r"^pytree structure error|[Tt]ree structure|leaves for PyTree|^Mismatch details|tree prefix|"
     r"pytree\) structure",
     "the trees have different structures: the containers, their lengths or their keys differ",
     "compare what `tree.structure` gives for each; an entry that stands for a whole subtree may "
     "be given once"),
    # -- meshes, specs and shardings ------------------------------------------------------------
    (r"^Unconstrained dims",
     "what enters and leaves a jitted function has a layout that is known in every dimension",
     "leave the whole value open with None, or constrain it inside the function"),
    (r"^Sharding passed to jit does not match",
     "the argument was placed before the call, and a jitted function does not move what was placed",
     "move it with `device_put` first, or leave in_shardings out"),
    (r"of type Auto or Manual",
     "only Explicit axes are part of types; the partitioner decides over Auto axes, and the body "
     "of `shard_map` over Manual ones",
     "over Auto axes use `with_sharding_constraint`, or make the mesh with Explicit axes"),
    (r"^Please set a mesh|not under a mesh context|non-empty mesh in context|"
     r"context mesh cannot be empty",
     "a PartitionSpec names axes, and no mesh says what they are here",
     Remedy("pass a `NamedSharding` of a mesh and the spec, or make the call under `set_mesh`",
            "mesh")),
    (r"not evenly divisible|evenly divi",
     "every device holds a block of one size, and the mesh axes do not divide the dimension",
     "pad the dimension to a multiple of the axis, split another one, or leave it whole"),
    (r"which require replication",
     "the result may differ from device to device along an axis that its spec leaves out",
     "reduce it over that axis, or name the axis in `out_specs`"),
    (r"^shard_map (?:in|out)_specs|^shard_map applied",
     "`shard_map` takes a tree of specs of the mesh's axes that matches the arguments, and one "
     "that matches the results",
     "give one spec an argument, all in a tuple, an empty one for what every device has whole"),
    (r"not found in mesh|Resource axis",
     "the mesh has no axis of that name",
     "take a name out of the mesh's `axis_names`"),
    (r"axis_types passed|number of axis_types",
     "each axis has one type: Auto, Explicit or Manual of `AxisType`",
     "give a tuple of as many types as there are axes"),
    (r"^`axis_shapes` passed|^Mesh requires|^Mesh axis names|mesh_shape",
     "a mesh has one size and one name for each axis, and no name twice",
     "pass `make_mesh` a tuple of sizes and a tuple of as many different names"),
    (r"NamedSharding needs|NamedSharding\.__new__",
     "a NamedSharding is a mesh with a spec",
     "pass the mesh first, then the spec"),
    (r"incompatible with its sharding annotation|only applicable to values of rank",
     "a spec has at most one entry for each dimension",
     "drop entries, or replicate with an empty spec"),
    (r"^shardings leaf|only supports instances of `NamedSharding`|"
     r"only accepts `None`, `[\w.]*Sharding`",
     "what is said of the placement is neither a sharding nor a PartitionSpec of names of axes",
     "pass a `NamedSharding`, or one of `devices`"),
    (r"in_shardings|out_shardings",
     "there is one sharding for each argument, or one that stands for all",
     "give a tuple as long as the arguments"),
    (r"shard shape|single device array shape",
     "each device holds the block that the sharding gives it, and this one has another shape",
     "return the part of the value at the index that the callback is given"),
    (r"is not available on traced|traced array",
     "while a function is traced its values are not known, only their types",
     "do this outside of the traced function, with its result"),
    (r"Unrecognized config option",
     "there is no setting of that name", "the documentation of `config` lists the settings"),
    (r"top_k", "there are not that many elements along the axis", "use a smaller `k`"),
)


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], str, Help], ...]:
    return tuple((re.compile(pattern), because, help) for pattern, because, help in _TABLE)


def advice(message: str) -> Advice:
    """Why the mistake of that message fails and what helps, as for a Diagnostic; or nothing."""
    first = message.partition("\n")[0]
    for pattern, because, help in _patterns():
        found = pattern.search(first)
        if found is not None:
            names = {k: v or "" for k, v in found.groupdict().items()}
            help = help if isinstance(help, Remedy) else help.format_map(names)
            return (because.format_map(names),), (help,)
    return (), ()
