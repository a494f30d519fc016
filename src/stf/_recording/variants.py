"""Variants: a driver's graph for certain data, and the patches that renew its nodes.

A node may depend on parameters, on data, or on both. It is a `Patch` then: which node, what it depends on, and how its
content is made for a launch. What it depends on is kept by the variant: `patches` are those that the values of
parameters change, `by_replica` those that other data change. The driver knows by the shape which kind it is.

=============  ======================================  ==============================
patch          content                                 shape
=============  ======================================  ==============================
`KernelPatch`  the bytes of the arguments of a launch  function, grid, block, memory
`BodyPatch`    a graph, captured anew                  None
`MemoryPatch`  how far a copy or a fill is moved       empty
=============  ======================================  ==============================

A patch makes its content anew for each launch, from the values and the data of that. Two steps, of which the first
makes a function of the values for some data, were quicker by nothing and needed seven classes.
"""

from __future__ import annotations

import cython

from stf._port.late_values import UNKNOWN


class PlayThisTime(Exception):
    """Raised where a launch cannot be a graph for its values, and the next one may be."""


@cython.final
@cython.cclass
class Variant:
    """A driver's graph for certain data: what is found out while it is captured, and its state between launches.

    For other data than those that were recorded, `bound` says which (`rebinding.Bound`). It is another object after
    each change, and None during one, or where that failed.
    """

    def __init__(self, launch, calls, life, moves):
        self.launch = launch
        self.patches = []
        self.by_replica = {} if moves else None
        self.calls = calls
        self.life = life
        self.values = UNKNOWN

    def complete(self):
        """Note that all is captured."""
        self.launch = self.port = None
        self.graph.complete(len(self.patches) > 0 or (self.by_replica is not None and len(self.by_replica) > 0))
        self.has_bodies = any([cython.cast(Patch, patch).shape is None for patch in self.patches])
        self.patches = self.patches or None
        if self.calls is not None:
            self.calls.remaining = len(self.calls.all)
            self.calls = self.calls if self.calls.all else None
        return 0

    def takes(self, varies, replicas):
        """Return whether it wants to know of a node that varies with values, or works on replicas."""
        return varies or (self.by_replica is not None and len(replicas) > 0)

    def note(self, patch, port, varies, replicas):
        """Remember a node on a port."""
        if varies:
            self.patches.append(patch)
        return self.note_replicas(patch, port, replicas) if self.by_replica is not None else 0

    def note_replicas(self, patch, port, replicas):
        """Remember a node that is renewed when other data take the place of replicas; None cannot be.

        What a condition decides about is captured on another port, and is no graph whose nodes could be renewed.
        """
        for number in {id(replica) for replica in replicas}:
            known: list = self.by_replica.setdefault(number, [])
            if patch is None or port is not self.port:
                self.by_replica[number] = None
            elif known is not None:
                known.append(patch)
        return 0

    def changed_for(self, before, after):
        """Return the nodes that work on other memory for other data, a list by replica; None if one cannot change."""
        if self.by_replica is None:
            return [None]
        anew: cython.bint = before.objects != after.objects
        return [
            patches
            for number, patches in self.by_replica.items()
            if anew or before.addresses.get(number) != after.addresses.get(number)
        ]

    def patches_for(self, before, after):
        """Return all nodes that are to be renewed for other data, each once, and those that depend on values."""
        found = {id(patch): patch for patches in self.changed_for(before, after) for patch in patches}
        found.update([(id(patch), patch) for patch in self.patches or ()])
        return list(found.values())


@cython.cclass
class Patch:
    """A node of a driver's graph that is another one for other values, for other data, or for both."""

    def content_for(self, launch, values):
        """Return what the node is for the values and the data of a launch."""
        content = self.make(launch, values if self.binding is None else self.binding(values))
        if content is None:
            raise PlayThisTime  # a body puts nothing on its stream, which a node cannot be
        return content

    def make(self, launch, values):
        """Return what the node is, for the values of the graph that it stands in; None: nothing."""
        raise NotImplementedError


@cython.final
@cython.cclass
class KernelPatch(Patch):
    """The launch of a kernel, some of whose arguments are parameters, or addresses of data.

    One that no program has is all made of parameters.
    """

    def __init__(self, program, position, arguments, recorded, shape):
        self.program = program
        self.position = position
        self.arguments = arguments
        self.recorded = recorded
        self.shape = shape

    def make(self, launch, values):
        content: bytes = self.recorded
        if launch.others is not None and self.program is not None:
            content = self.program.block_at(self.position, launch.others)
        return content if self.arguments is None else self.arguments.packed(values, content)


@cython.final
@cython.cclass
class BodyPatch(Patch):
    """What a body puts on its stream, captured by itself."""

    def __init__(self, again, first):
        self.again = again
        self.first = first
        self.shape = None

    def make(self, launch, values):
        return self.again(self.first, values, launch.rebinding)


@cython.final
@cython.cclass
class MemoryPatch(Patch):
    """A copy or a fill: its memory is known by how far it is from that of the capture."""

    def __init__(self, launch: Launch, target, source, node):
        self.node = node
        self.target = target
        self.source = source
        self.target_address = launch.now(target).address
        self.source_address = 0 if source is None else launch.now(self.source).address
        self.content, self.shape = (0, 0), ()

    def make(self, launch, values):
        target = launch.now(self.target)
        if self.source is None:
            return target.address - self.target_address, 0
        source = launch.now(self.source)
        if source.home or target.home:  # as in a copy: CUDA wants memory that it knows
            launch.engine.root.pin(source)
            launch.engine.root.pin(target)
        return target.address - self.target_address, source.address - self.source_address


@cython.cclass
class Arguments:
    """Arguments of a recorded launch, some of which are parameters."""

    def packed(self, values, recorded):
        """Return the bytes of all arguments for the values of a launch; the others are as they were recorded."""
        raise NotImplementedError
