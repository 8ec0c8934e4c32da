"""Which nodes of a graph one kernel computes.

Grouping walks from the results back: a node joins the group that reads it if that group's loops reach each of its elements
where they need it (a reduction: once per row); a node that groups share joins one of them as a further result, is computed
again where that is cheaper than a store and loads, or becomes the root of a group of its own. In the body of a loop, groups
that walk the same positions become one.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from loopwright.ir.cached import cached_property
from loopwright.ir.dims import Shape
from loopwright.ir.graph import Graph, Node, Value, acts
from loopwright.ir.loops import Index, Prefix, Reduce, Scatter
from loopwright.ir.ops.broadcasting import broadcast
from loopwright.ir.ops.indexing import SCATTERS
from loopwright.ir.ops.sorting import search
from loopwright.ir.ops.structural import reshape, slice_
from loopwright.kernels.gemm import Gemm, Match, match_gemm, numbers_of_rows
from loopwright.lower.capacity import count, has_place, is_free
from loopwright.lower.choosing import check_again, chosen_host, kind, others
from loopwright.lower.composition import Position, fresh_indices, reads
from loopwright.lower.contractions import is_contraction
from loopwright.lower.convolution_ops import grouped, one_group
from loopwright.lower.decisions import Again, Apart, Call, Decided, Generate, Join, Place, Placing, Taken, refuse
from loopwright.lower.groups import Form, Group, turns_rows
from loopwright.lower.instructions import MOST_INTERLEAVED, is_short
from loopwright.lower.keeping import WORTH_KEEPING
from loopwright.lower.kernel import MOST_NODES
from loopwright.lower.merging import merge
from loopwright.lower.partials import add_up_along, behind
from loopwright.lower.puts import put
from loopwright.lower.survey import EXPENSIVE, own_cost, stacks_columns
from loopwright.lower.versions import Update, base_of, updates_of

MOST_POSITIONS = 4  # at which one group may read one value
WORTH_STORING = 10  # of an element, beyond the first time that it would be computed
MOST_VISITS = 64  # when looking for a path between groups, or behind a value


def moves_nothing(n: Node) -> bool:
    """A reshape: the same bytes under another shape."""
    return n.op is reshape


def _drops_ones(n: Node) -> bool:
    """A reshape that only adds or removes axes of size 1 indexes as cheaply as it stores."""
    return [x for x in n.inputs[0].type.shape if x != 1] == [x for x in n.outputs[0].type.shape if x != 1]


class Grouping:
    """`carried`: for some results, by number, the parameter whose bytes they have if they are made by updates of it alone.
    `in_loop`: whether the graph is run many times, maybe over short arrays, where each kernel costs. `decided`: what is not
    left to the rules. `chained`: see `lower/chains.py`. `paired`: products that no library makes as fast. `taken`: what the
    rules decided, and what was, if `is_noted`. `match`: which products the library makes. `in_turn`: whether one
    thread goes past element after element: running folds go on from the one before, sums over rows are added up on the way."""

    def __init__(self, g: Graph, blas: bool, carried: Mapping[int, Value], in_loop: bool, decided: Decided,
                 chained: Mapping[Node, Node], paired: Set[Node], is_noted: bool, match: Match, in_turn: bool) -> None:
        self.g, self.blas, self.fresh, self.decided, self.chained = g, blas, fresh_indices(), decided, chained
        self.paired, self.is_noted, self.match, self.in_turn = paired, is_noted, match, in_turn
        self.ends = set(chained.values())  # of chains of products
        self.taken: list[Taken] = []
        self.left: set[Place] = set()  # places of nodes that rules put elsewhere in the end
        self.producer = {v: n for n in g.nodes for v in n.outputs}
        self.users: dict[Value, list[Node]] = {}
        for n in g.nodes:
            for v in n.inputs:
                self.users.setdefault(v, []).append(n)
        self.forms: dict[Node, Form] = {}
        self.updates = self._updates(carried)
        self.results = set(g.results)
        self.tables = {n.inputs[0] for n in g.nodes if n.op is search}
        self.broadcasts = {v for n in g.nodes for v in n.outputs if n.op is broadcast and n.inputs[0].type.rank < v.type.rank}
        self.repeated: dict[Value, int] = {}  # what is computed by several groups: its cost with what follows it
        self.groups_of: dict[Node, list[Group]] = {}
        self.order: list[Group] = []
        self.alike: dict[Shape, list[Group]] = {}  # of these, those that are loops over such a shape
        self.position = {n: k for k, n in enumerate(g.nodes)}
        self.lone: set[Node] = set()  # library calls and reshapes between kernels
        self.effects: list[Group] = []  # groups with effects, from the last to the first: each runs after the one before it
        for n in reversed(g.nodes):
            self._place(n)
        for n, update in self.updates.items():
            self._after_readers(n, update.base)
        merge(self, in_loop)
        if in_turn:
            add_up_along(self)
        self.taken = [replace(t, decision=None) if isinstance(t.decision, Placing) and t.decision.node in self.left else t
                      for t in self.taken]

    def _updates(self, carried: Mapping[int, Value]) -> dict[Node, Update]:
        """The scatters that may write where what they update lies."""
        scatters: dict[Node, tuple[Scatter, Value]] = {}
        for n in self.g.nodes:
            if (n.op in SCATTERS or n.op is put) and (base := base_of(n, e := self.form(n).expr)) is not None:
                assert isinstance(e, Scatter)
                scatters[n] = e, base
        return updates_of(self.g, scatters, carried)

    def _after_readers(self, n: Node, v: Value) -> None:
        """Whatever reads the old value goes before the update, if it can."""
        group, = self.groups_of[n]
        for reader in self.users.get(v, []):
            for other in self.groups_of[reader]:
                if other is not group and not self.leads_to(group, other):
                    other.readers.add(group)

    def _place(self, n: Node) -> None:
        choice = self.decided.placing(n)
        if n.op.loop is None or self._is_called(n) or (moves_nothing(n) and self._is_between(n, choice)):
            if isinstance(choice, Again | Join):
                refuse(n, choice, "a library call or control flow is in no other kernel")
            if moves_nothing(n):
                self._note(n, Apart(self.place(n)), self._readers(n))
            self.lone.add(n)
            group = self._new_group(n)
            self.groups_of[n] = [group]
            if acts(n):
                group.readers.update(self.effects[-1:])
                self.effects.append(group)
            return
        if not self.users.get(n.outputs[0]) and n.outputs[0] not in self.results:
            self.groups_of[n] = []
            return
        form = self.form(n)
        groups = self._readers(n)
        choice = choice or self._choice(n, form, groups)
        self._note(n, choice, groups)
        match choice:
            case Apart():
                self.groups_of[n] = [self._new_group(n, form)]
            case Again():
                check_again(self, n, form, groups, choice)
                self.groups_of[n] = groups
                self.repeated[n.outputs[0]] = self._repeated_cost(n, form)
                for group in groups:
                    self._add(n, group)
            case Join():
                self._join(n, form, chosen_host(self, n, form, groups, choice), groups)

    def _choice(self, n: Node, form: Form, groups: list[Group]) -> Placing:
        """What is decided about a node by rule."""
        at = self.place(n)
        again = len(groups) > 1 and self._recomputable(n, form, groups, EXPENSIVE - 1)
        host = None if again else self._host(n, form, groups)
        if host is not None:
            return Join(at, self.place(host.root))
        return Again(at) if again or self._recomputable(n, form, groups, 1) else Apart(at)

    def _note(self, n: Node, choice: Placing, readers: list[Group]) -> None:
        """Keep where a node is put, and where else it might be."""
        if self.is_noted:
            self.taken.append(Taken(choice, others(self, n, readers), n.outputs[0], kind(self, n)))

    def leave_to_rules(self, n: Node) -> None:
        """Take back what was said of a node, since rules put it elsewhere later: said explicitly, it would stay."""
        self.left.add(self.place(n))

    def place(self, n: Node) -> tuple[int, ...]:
        """Where the node is in the whole."""
        return self.decided.place(n)

    def _is_called(self, n: Node) -> bool:
        """Whether the library multiplies matrices for the node."""
        choice = self.decided.multiplying(n)
        product = self.match(n)
        if product is None:
            if choice is not None:
                refuse(n, choice, "it is no product of contiguous matrices of f32 or f64, as the library makes them")
            return False
        if isinstance(choice, Call) and not self.blas:
            refuse(n, choice, "there is no library")
        is_ours = n in self.chained or n in self.ends or n in self.paired or self._is_fold(n, product)
        is_called = self.blas and not isinstance(choice, Generate) and (isinstance(choice, Call) or not is_ours)
        both = Generate(self.place(n)), Call(self.place(n))
        if self.is_noted:
            self.taken.append(Taken(both[is_called], both if self.blas else (), n.outputs[0], kind(self, n)))
        return is_called

    def _is_fold(self, n: Node, product: Gemm) -> bool:
        """Whether a processor adds up a matrix's rows, each times a number of a vector that is there: a fold like others, which
        reads rows as they lie. The library, given stretches of columns for threads, reads parts of rows; a vector that is
        computed would be computed for each stretch."""
        vector = numbers_of_rows(product) if self.match is match_gemm else None
        return vector is not None and n.inputs[vector] not in self.producer

    def _is_between(self, n: Node, choice: Placing | None) -> bool:
        """Whether a reshape stands between kernels."""
        return not self._fusable_reshape(n) if choice is None else isinstance(choice, Apart)

    def _fusable_reshape(self, n: Node) -> bool:
        """One that only has to do with axes of size 1, between computing nodes."""
        if not _drops_ones(n) or n.outputs[0] in self.results:
            return False
        return all(u not in self.lone for u in self.users.get(n.outputs[0], []))

    def form(self, n: Node) -> Form:
        known = self.forms.get(n)
        if known is None:
            index = tuple([Index(f"i{a}") for a in range(n.outputs[0].type.rank)])
            known = self.forms[n] = Form(reads(n, index, self.fresh)[0], index)
        return known

    def _readers(self, n: Node) -> list[Group]:
        found: dict[Group, None] = {}
        for v in n.outputs:
            for u in self.users.get(v, []):
                found.update(dict.fromkeys(self.groups_of[u]))
        return list(found)

    def _new_group(self, n: Node, form: Form | None = None) -> Group:
        """A group with this root. Library calls are groups of one, so that paths between groups see them."""
        first = n.outputs[:1]
        form = form or Form(Index("none"), ())
        group = Group(n, [], {v: {form.index: None} for v in first}, form.expr, form.index, list(first))
        if n in self.ends:
            group.level, group.last_axis = n.outputs[0].type.rank - 1, True
        elif isinstance(form.expr, Reduce):
            group.last_axis = _over_last(n)
        for other in self._readers(n):
            group.readers.add(other)
        if n not in self.lone:
            self._add(n, group)
            self.alike.setdefault(n.outputs[0].type.shape, []).append(group)
        self.order.append(group)
        return group

    # ---- joining -------------------------------------------------------------------------------
    def _host(self, n: Node, form: Form, groups: list[Group]) -> Group | None:
        """The group that n can be computed in, such that every other reader can run after it."""
        shared = len(groups) > 1 or n.outputs[0] in self.results
        for group in groups:
            if not (self.is_open(n, group) and self.reaches(n, form, group, shared) and self._suits(n, form, group)):
                continue
            if not any(other is not group and self.leads_to(other, group) for other in groups):
                return group
        return None

    def is_open(self, n: Node, group: Group) -> bool:
        """Whether the group takes n in. Several updates in place must not read what others of them change; windows would read
        what is transposed across memory again and again, and folds beside what lies as they go: tiles copy it in less time."""
        update = self.updates.get(group.root)
        unseen = (update is None or update.may_compute(n.outputs[0])) \
            and n.outputs[0] not in self.tables  # a search reads elements again and again
        if turns_rows(n) and (_has_windows(group) or (self.in_turn and self._folds_beside(n, group))):
            return False
        return unseen and group.root not in self.lone and has_place(self, n, group)

    def _folds_beside(self, n: Node, group: Group) -> bool:
        """Whether the group folds what is computed of n and of what lies in memory as its loops go, element by element."""
        v, own = n.outputs[0], group.positions.get(n.outputs[0])
        if not (group.level is not None or isinstance(group.expr, Reduce)) or any(map(is_contraction, group.nodes)):
            return False
        return any(w is not v and w.type.shape == v.type.shape and group.positions.get(w) == own and self._lies(w)
                   for m in group.nodes for w in m.inputs)

    def _lies(self, v: Value) -> bool:
        """Whether it is read, or what it is a map of, in the order of its memory, as far as a few looks show."""
        todo, seen = [v], {v}
        while todo and len(seen) <= MOST_VISITS:
            v = todo.pop()
            n = self.producer.get(v)
            if n is None or not self.is_map(n):
                return True
            if not turns_rows(n):
                more = {w for w in n.inputs if w.type.shape == v.type.shape} - seen
                seen |= more
                todo += more
        return False

    def reaches(self, n: Node, form: Form, group: Group, shared: bool) -> bool:
        """Whether the group's loops reach each element of n where they need it: once, if it is `shared` and stored."""
        v = n.outputs[0]
        if not self.reads_at_few(v, group) or (isinstance(group.expr, Prefix) and not form.is_map):
            return False
        aligned = self._is_aligned(v, group)
        if shared and not (aligned and self._storable(v, group)):
            return False
        if not isinstance(form.expr, Reduce):
            return form.is_map
        if len(group.nodes) >= MOST_NODES:
            return False
        in_rows = self.chained.get(n) in group.nodes and self._in_rows(group, self.positions_of(v, group))
        return (aligned or in_rows) and self._fits_row(n, group)

    def _suits(self, n: Node, form: Form, group: Group) -> bool:
        """Whether the group computes few elements of n more than once, or cheap ones."""
        v = n.outputs[0]
        positions, cost = self.positions_of(v, group), own_cost(form.expr) if form.is_map else 0
        if self.in_turn and cost >= EXPENSIVE and group.has_no_lanes:
            return False
        apart = 0 < v.type.rank < len(group.index) and not stacks_columns(group.root, MOST_INTERLEAVED)
        if cost >= EXPENSIVE and apart and n not in self._folded:
            return False  # one after another for each row; with lanes along the rows in a kernel of its own
        if cost < WORTH_KEEPING or self._is_aligned(v, group) or self._in_rows(group, positions):
            return True
        if cost < EXPENSIVE:
            is_dear = self.in_turn and (any(group.is_folded_again(p) for p in positions)
                                        or (len(positions) - 1) * self._cost_of_maps(n) >= WORTH_STORING)
            return not is_dear and not any(group.is_spread(p) for p in positions)
        return len(positions) == 1 and not self._repeats(v, group, positions)

    def _cost_of_maps(self, n: Node) -> int:
        """The cost of an element of n with that of the maps it is computed of, as far as it matters."""
        cost, todo, seen = 0, [n], {n}
        while todo and cost < WORTH_STORING:
            n = todo.pop()
            cost += own_cost(self.form(n).expr)
            makers = {self.producer[v] for v in n.inputs if v in self.producer and v not in self.results} - seen
            todo += [x for x in makers if self.is_map(x)]
            seen |= makers
        return cost

    @cached_property
    def _folded(self) -> set[Node]:
        """The nodes that are computed from folds."""
        found: set[Node] = set()
        for n in self.g.nodes:
            if n.op.loop is None or not self.form(n).is_map or any(self.producer.get(v) in found for v in n.inputs):
                found.add(n)
        return found

    def _is_aligned(self, v: Value, group: Group) -> bool:
        """Whether the group reads v just where its loops are."""
        return all(p == group.index[:v.type.rank] for p in self.positions_of(v, group))

    def _storable(self, v: Value, group: Group) -> bool:
        """Whether the group's loops visit each element of v once, and nothing past it: at its full depth, or once per row.
        A slice or a concatenation reads at the loops' own indices an array that has more positions than they, or fewer."""
        if isinstance(group.expr, Prefix | Scatter) or not group.spans(v):
            return False
        full = v.type.rank == len(group.index)
        return full or v.type.rank == group.level

    def _fits_row(self, n: Node, group: Group) -> bool:
        """A reduction joins as a value of each row: the rows are those that the group has, or gets."""
        rank, root_rank = n.outputs[0].type.rank, len(group.index)
        if self.chained.get(n) in group.nodes:
            return group.level == (rank - 1 if is_contraction(n) else rank)
        if n in self.ends:
            return rank == root_rank and group.level in (None, rank - 1) and not any(map(is_contraction, group.nodes))
        if isinstance(group.expr, Prefix | Scatter) or (rank == 0 and root_rank > 0) or not group.spans(n.outputs[0]):
            return False
        if any(map(is_contraction, group.nodes)) or (is_contraction(n) and group.level is not None):
            return False  # a kernel is tiled for one product, beside which nothing is folded
        if group.level not in (None, rank) or group.last_axis not in (None, _over_last(n)):
            return False
        return _over_last(n) or rank == root_rank

    def _repeats(self, v: Value, group: Group, positions: Iterable[Position]) -> bool:
        """Whether the group's loops read an element of v many times: some loop around the read is not in its index."""
        return any(group.repeats(p) for p in positions)

    def _in_rows(self, group: Group, positions: Iterable[Position]) -> bool:
        """Whether the group reads whole rows of it, which can be kept from one pass over the row to the next."""
        level = group.level
        return bool(level) and all(
            p[:level] == group.index[:level] and all(isinstance(e, Index) for e in p[level:]) for p in positions)

    def reads_at_few(self, v: Value, group: Group) -> bool:
        """Whether the group reads v at few positions."""
        return len(self.positions_of(v, group)) <= MOST_POSITIONS

    def positions_of(self, v: Value, group: Group) -> dict[Position, None]:
        """Where the group reads v."""
        return group.positions.get(v, {})

    def _join(self, n: Node, form: Form, group: Group, readers: list[Group]) -> None:
        v = n.outputs[0]
        self.groups_of[n] = [group]
        if n in self.ends:
            group.level, group.last_axis = v.type.rank - 1, True
        elif isinstance(form.expr, Reduce) and not (is_contraction(n) and n in self.chained):
            group.level, group.last_axis = v.type.rank, _over_last(n)
        others = [r for r in readers if r is not group]
        if others or v in self.results:
            group.results.append(v)
            group.readers.update(others)
        self._add(n, group)

    def _add(self, n: Node, group: Group) -> None:
        """Make n one of the group's nodes, and note where the group now reads n's operands."""
        count(self, n, group)
        group.nodes.append(n)
        self._read(n, group)

    def _read(self, n: Node, group: Group) -> None:
        v = n.outputs[0]
        positions = [group.index[:v.type.rank]] if v in group.results else list(group.positions.get(v, {}))
        for p in positions:
            for k, at in reads(n, p, self.fresh)[1]:
                group.positions.setdefault(n.inputs[k], {})[at] = None

    def _recomputable(self, n: Node, form: Form, groups: list[Group], most: int) -> bool:
        """Maps of at most one array are computed again by each reader, if that costs no more than `most` with what follows
        and is computed again: they read no more than if one of them stored it. So is cheap work on numbers alone."""
        if not form.is_map or n.outputs[0] in self.results or not groups:
            return False
        if is_free(self, n):
            return all(self.is_open(n, g) for g in groups)
        if self._repeated_cost(n, form) > most:
            return False
        if most > 1 and any(sum(x != 1 for x in n.outputs[0].type.shape) < g.depth() for g in groups):
            return False  # it has not all axes of their loops: little would be stored
        if not all(self.is_open(n, g) for g in groups):
            return False
        if not all(self.reads_at_few(n.outputs[0], g) for g in groups):
            return False
        indices = {n.inputs[k] for k in form.finders()}
        arrays = {x for v in n.inputs if v not in self.broadcasts | indices for x in self._arrays(v)}
        return len(arrays) <= 1

    def _arrays(self, v: Value) -> tuple[Value, ...]:
        """The array that v, or what v is a slice of, reads; none for a number."""
        n = self.producer.get(v)
        if v.type.rank == 0 or (n is not None and not n.inputs):
            return ()
        return n.inputs if n is not None and n.op is slice_ else (v,)

    def _repeated_cost(self, n: Node, form: Form) -> int:
        after = [self.repeated.get(v, 0) for u in self.users.get(n.outputs[0], []) for v in u.outputs]
        return own_cost(form.expr) + max(after, default=0)

    # ---- sums of rows --------------------------------------------------------------------------
    def is_stored(self, v: Value, group: Group) -> bool:
        """Whether a value that the group computes is its root's, a result of the graph, or read by another group."""
        if v in group.root.outputs or v in self.results:
            return True
        return any(self.groups_of[u] != [group] for u in self.users.get(v, []))

    def is_map(self, n: Node) -> bool:
        return n.op.loop is not None and self.form(n).is_map

    def has_room(self, group: Group, more: int) -> bool:
        """Whether a group stores an element for each step of its loops, and `more` nodes may do so too."""
        special = group.root in self.lone or group.root in self.updates or len(group.nodes) + more > MOST_NODES
        return not special and not isinstance(group.expr, Reduce | Prefix | Scatter) \
            and not is_short(group.root.outputs[0].type.shape)

    def makers(self, values: Iterable[Value]) -> list[Group]:
        """The groups from which others read such values."""
        return [g for v in values if v in self.producer for g in self.groups_of[self.producer[v]] if g.makes(v)]

    def move_sum(self, group: Group, old: Node, new: Node, host: Group, part: Node, needed: Set[Node]) -> None:
        """Compute `new` in the group, where `old` was, from a further result of the host: that of `part`, for which the host
        does what is needed."""
        self.position[part] = self.position[new] = self.position[old]
        self.leave_to_rules(old)
        self.decided.replaced(old, new)
        nodes = [new if n is old else n for n in group.nodes]
        kept = behind(group.results, nodes)
        group.nodes = [n for n in nodes if n in kept]
        group.root = new if group.root is old else group.root
        self.groups_of.update({old: [host], new: [group], part: [host]})
        self.producer.update({new.outputs[0]: new, part.outputs[0]: part})
        host.nodes.append(part)
        host.positions.update({part.outputs[0]: {host.index: None}})
        host.positions.setdefault(part.inputs[0], {})[host.index] = None
        for n in sorted(needed, key=self.position.__getitem__, reverse=True):
            others = [x for x in self.groups_of[n] if x is not host and (x is not group or n in kept)]
            self.groups_of[n] = [*others, host]
            if n in host.nodes:
                self._read(n, host)
            else:
                self._add(n, host)
        host.readers.add(group)
        read = {v for n in host.nodes for v in n.inputs} - {v for n in host.nodes for v in n.outputs}
        for other in self.makers(read):
            if other is not host:
                other.readers.add(host)
        sums = {v for n in host.nodes if n.op is part.op for v in n.outputs}
        host.results = [*(v for v in host.results if v in sums or self.is_stored(v, host)), *part.outputs]

    def leads_to(self, start: Group, goal: Group) -> bool:
        """Whether what `start` computes is read, at however many removes, by `goal`; unknown counts as yes."""
        todo, seen = [start], {start}
        while todo:
            group = todo.pop()
            if goal in group.readers:
                return True
            fresh = group.readers - seen
            seen |= fresh
            todo.extend(fresh)
            if len(seen) > MOST_VISITS:
                return True
        return False


def _has_windows(group: Group) -> bool:
    """Whether it reads windows, each element again and again: those of a convolution in tiles, or reductions over some."""
    return any(n.op in (one_group, grouped) or "window" in n.attrs for n in group.nodes)


def _over_last(n: Node) -> bool:
    axes = n.attrs.get("axes", (n.attrs.get("axis"),))
    return n.inputs[0].type.rank - 1 in axes if len(n.inputs) == 1 else False
