"""What JAX's transforms make of a program, run by NumPy: XLA takes seconds to compile what runs in a millisecond."""
import numpy as np

SIMPLE = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "logistic": lambda x: 1 / (1 + np.exp(-x)), "square": np.square, "abs": np.abs,
    "max": np.maximum, "min": np.minimum, "sign": np.sign,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "stop_gradient": lambda x: x, "copy": lambda x: x,
}
WITH_PARAMETERS = {
    "integer_pow": lambda x, y, **_: x ** y if y >= 0 else 1 / x ** -y,
    "convert_element_type": lambda x, new_dtype, **_: np.asarray(x, new_dtype),
    "reshape": lambda x, new_sizes, **_: np.reshape(x, new_sizes),
    "squeeze": lambda x, dimensions, **_: np.squeeze(x, dimensions),
    "expand_dims": lambda x, dimensions, **_: np.expand_dims(x, dimensions),
    "transpose": lambda x, permutation, **_: np.transpose(x, permutation),
    "rev": lambda x, dimensions, **_: np.flip(x, dimensions),
    "reduce_sum": lambda x, axes, **_: np.sum(x, axis=axes),
    "reduce_or": lambda x, axes, **_: np.any(x, axis=axes),
    "reduce_and": lambda x, axes, **_: np.all(x, axis=axes),
    "slice": lambda x, start_indices, limit_indices, strides, **_: x[tuple(
        slice(*at) for at in zip(start_indices, limit_indices, strides or (1,) * x.ndim, strict=True))],
    "clamp": lambda low, x, high, **_: np.clip(x, low, high),
    "iota": lambda dtype, shape, dimension, **_: np.broadcast_to(
        np.arange(shape[dimension], dtype=dtype).reshape([-1 if a == dimension else 1 for a in range(len(shape))]), shape),
}


def _several(*xs, dimension, **_):
    return np.concatenate(xs, axis=dimension)


def _broadcast(x, shape, broadcast_dimensions, **_):
    kept = [np.shape(x)[broadcast_dimensions.index(a)] if a in broadcast_dimensions else 1 for a in range(len(shape))]
    return np.broadcast_to(np.reshape(x, kept), shape)


def _select(which, *cases, **_):
    return np.choose(np.broadcast_to(which, np.shape(cases[0])).astype(int), cases)


def _running(x, axis, reverse, **_):
    return np.flip(np.cumsum(np.flip(x, axis), axis=axis), axis) if reverse else np.cumsum(x, axis=axis)


def _scan(*args, jaxpr, length, reverse, num_consts, num_carry, **_):
    fixed, carry, xs = args[:num_consts], list(args[num_consts:num_consts + num_carry]), args[num_consts + num_carry:]
    rows = []
    for k in reversed(range(length)) if reverse else range(length):
        out = evaluate(jaxpr.jaxpr, jaxpr.consts, [*fixed, *carry, *(x[k] for x in xs)])
        carry = out[:num_carry]
        rows.append(out[num_carry:])
    return [*carry, *(np.stack(column) for column in zip(*(rows[::-1] if reverse else rows), strict=True))]


def _while(*args, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts, **_):
    for_test, for_body = args[:cond_nconsts], args[cond_nconsts:cond_nconsts + body_nconsts]
    state = args[cond_nconsts + body_nconsts:]
    while evaluate(cond_jaxpr.jaxpr, cond_jaxpr.consts, [*for_test, *state])[0]:
        state = evaluate(body_jaxpr.jaxpr, body_jaxpr.consts, [*for_body, *state])
    return state


def _cond(index, *args, branches, **_):
    branch = branches[int(index)]
    return evaluate(branch.jaxpr, branch.consts, args)


def _call(*args, jaxpr=None, call_jaxpr=None, **_):
    inner = jaxpr if call_jaxpr is None else call_jaxpr
    return evaluate(inner.jaxpr, inner.consts, args)


def _split(x, sizes, axis, **_):
    return np.split(x, np.cumsum(sizes)[:-1], axis=axis)


def _pad(x, value, padding_config, **_):
    """With gaps inside and, where a width is negative, less at an end."""
    inside = [n + max(n - 1, 0) * gap for n, (_, _, gap) in zip(x.shape, padding_config, strict=True)]
    whole = np.full([n + max(low, 0) + max(high, 0) for n, (low, high, _) in zip(inside, padding_config, strict=True)], value)
    whole[tuple(slice(max(low, 0), max(low, 0) + n, gap + 1)
                for n, (low, _, gap) in zip(inside, padding_config, strict=True))] = x
    return whole[tuple(slice(max(-low, 0), n - max(-high, 0))
                       for n, (low, high, _) in zip(whole.shape, padding_config, strict=True))]


def _dot(x, y, dimension_numbers, **_):
    (contract, batch), letters = dimension_numbers, iter("abcdefghijklmnopqrstuvwxyz")
    left, right = [next(letters) for _ in x.shape], [next(letters) for _ in y.shape]
    for a, b in (*zip(*contract, strict=True), *zip(*batch, strict=True)):
        right[b] = left[a]
    free = [[at[a] for a in range(len(at)) if a not in contract[side] and a not in batch[side]]
            for side, at in enumerate((left, right))]
    out = [left[a] for a in batch[0]] + free[0] + free[1]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", x, y)


WITH_PARAMETERS |= {"concatenate": _several, "broadcast_in_dim": _broadcast, "select_n": _select, "cumsum": _running,
                    "pad": _pad, "dot_general": _dot}
SEVERAL = {"split": _split, "scan": _scan, "while": _while, "cond": _cond, "jit": _call, "pjit": _call,
           "custom_jvp_call": _call, "closed_call": _call}


@np.errstate(all="ignore")  # JAX warns of nothing
def evaluate(jaxpr, constants, args):
    """The results of a jaxpr. What NumPy has no one function for is run by JAX, one operation at a time."""
    env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *args), strict=True))
    for e in jaxpr.eqns:
        xs = [env[v] if type(v).__name__ != "Literal" else v.val for v in e.invars]
        name = e.primitive.name
        if name.startswith("empty"):  # of nothing yet, or of rows to come
            out = [np.zeros(v.aval.shape, v.aval.dtype) for v in e.outvars]
        elif name in SEVERAL:
            out = SEVERAL[name](*xs, **e.params)
        elif name in SIMPLE:
            out = [SIMPLE[name](*xs)]
        elif name in WITH_PARAMETERS:
            out = [WITH_PARAMETERS[name](*xs, **e.params)]
        else:
            out = e.primitive.bind(*map(np.asarray, xs), **e.params)
            out = [np.asarray(x) for x in (out if e.primitive.multiple_results else [out])]
        env.update(zip(e.outvars, out, strict=True))
    return [env[v] if type(v).__name__ != "Literal" else v.val for v in jaxpr.outvars]
