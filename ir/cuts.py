"""Minimum cuts of networks with integer capacities, by Dinic's algorithm (E. A. Dinic, Soviet Math. Doklady 11, 1970)."""
from __future__ import annotations

UNBOUNDED = 1 << 62


class Network:
    """Vertices by number, and arcs between them. Arcs k and k ^ 1 are one arc and its reverse."""

    def __init__(self, vertices: int) -> None:
        self.arcs: list[list[int]] = [[] for _ in range(vertices)]
        self.target: list[int] = []
        self.left: list[int] = []

    def add(self, a: int, b: int, capacity: int) -> None:
        """An arc from a to b."""
        for x, y, c in ((a, b, capacity), (b, a, 0)):
            self.arcs[x].append(len(self.target))
            self.target.append(y)
            self.left.append(c)

    def sink_side(self, source: int, sink: int) -> list[bool]:
        """Of the cuts that cost least, the one with the fewest vertices on the sink's side: which those are."""
        while (distance := self._distances(sink))[source] >= 0:
            self._saturate(source, sink, distance)
        return [d >= 0 for d in distance]

    def _distances(self, sink: int) -> list[int]:
        """How many arcs with capacity left lead from each vertex to the sink; -1 where none do."""
        distance = [-1] * len(self.arcs)
        distance[sink] = 0
        todo = [sink]
        for a in todo:
            for k in self.arcs[a]:
                b = self.target[k]
                if distance[b] < 0 and self.left[k ^ 1]:
                    distance[b] = distance[a] + 1
                    todo.append(b)
        return distance

    def _saturate(self, source: int, sink: int, distance: list[int]) -> None:
        """Send what goes along shortest paths, until each has an arc without capacity."""
        tried = [0] * len(self.arcs)
        path: list[int] = []  # arcs
        at = source
        while True:
            if at == sink:
                self._send(path)
                at = self.target[path[-1]] if path else source
                continue
            while tried[at] < len(self.arcs[at]):
                k = self.arcs[at][tried[at]]
                if self.left[k] and distance[self.target[k]] == distance[at] - 1:
                    path.append(k)
                    at = self.target[k]
                    break
                tried[at] += 1
            else:
                if not path:
                    return
                at = self.target[path.pop() ^ 1]
                tried[at] += 1

    def _send(self, path: list[int]) -> None:
        """Send as much as fits along a path, and go back to the first arc that is full."""
        amount = min([self.left[k] for k in path])
        for k in path:
            self.left[k] -= amount
            self.left[k ^ 1] += amount
        del path[next(i for i, k in enumerate(path) if not self.left[k]):]
