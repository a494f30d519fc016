"""Task functions: ordinary functions whose parameters say how they are accessed; a call is a task."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types

import cython

from stf._engine import outcomes
from stf._engine.access import accumulate_access, must_have_shape
from stf._support.arguments import name_of, priority_of, refuse_generator
from stf.errors import TaskFailedError
from stf.interop import adapters
from stf.interop.jax_arrays import JaxCopy
from stf.places.places import ExecPlace
from stf.tasks import capsules
from stf.tasks.arguments import check_draws, count_draws, generator_at, not_data, refuse_container
from stf.tasks.closures import check_globals
from stf.tasks.late_arrays import settle_open
from stf.tasks.lent import data_lent, lend
from stf.tasks.new_data import results_of
from stf.tasks.parameters import mode_of_accesses, modes_in, read_annotation
from stf.values.containers import data_in, is_container, is_object_of_data, split
from stf.values.parts import Parts, leaves, libraries

TOKEN: object = adapters.TOKEN
JAX_COPY: object = JaxCopy
FIXED = ("device", "host", "auto")  # kinds of places that are known by a number or a word
MOST_VARIANTS = 1024  # of a function, at places of different numbers


class TaskFunction:
    """A function whose calls are tasks; made by ``@stf.task``."""

    def __init__(self, fn, symbol=None, arrays=None, where=None, in_graphs=False, pure=False):
        if not callable(fn) or isinstance(fn, classmethod):
            hint = "; write @classmethod above @stf.task" if isinstance(fn, classmethod) else ""
            raise TypeError(f"@stf.task decorates a function, got {type(fn).__name__}{hint}")
        inner = fn.func if isinstance(fn, functools.partial) else fn
        if isinstance(inner, (TaskFunction, BoundTaskFunction)):
            raise TypeError(f"'{inner.symbol}' is a task function already; call it, or {type(fn).__name__} of it")
        refuse_generator("@stf.task", fn)
        self.fn = fn
        self.symbol = name_of(symbol) or getattr(inner, "__name__", "task")
        self.arrays_of = self.library = arrays
        self.where = where
        self.in_graphs, self.pure = in_graphs, pure  # on the host it uses no CUDA; see `stf.task`
        self.closes = getattr(fn, "__closure__", None) is not None or isinstance(fn, functools.partial)
        self.wraps = type(fn) is not types.FunctionType or "__wrapped__" in fn.__dict__
        self.reads = self.wraps or bool(names_in(fn.__code__).read)
        self.holds = self.closes or self.wraps or may_reach_arrays(fn)
        self.runs = fn
        if not self.wraps:
            modes: list = []
            with contextlib.suppress(TypeError, NameError):  # of an annotation that cannot be resolved yet
                modes = modes_in(fn)
            refuse_lost(fn, self.symbol, modes, 0, True)
        if cython.compiled:
            self.vectorcall = cython.cast(vectorcallfunc, vectorcall)

    def __getattr__(self, name):
        """``__name__`` and the like are the function's."""
        return getattr(self.fn, name)

    def __reduce__(self):
        """Pickle it as functions are, by name, where it is what has that name; else by what it is made of."""
        import pkgutil

        name = f"{getattr(self.fn, '__module__', None)}:{getattr(self.fn, '__qualname__', None)}"
        with contextlib.suppress(AttributeError, ImportError, ValueError):  # such a name leads nowhere
            if pkgutil.resolve_name(name) is self:
                return pkgutil.resolve_name, (name,)
        return self.made_of()

    def made_of(self):
        """Return the class, and what it is called with for a function like this one."""
        return type(self), (self.fn, self.symbol, self.arrays_of, self.where, self.in_graphs, self.pure)

    def __get__(self, instance, owner):
        """Return a task function in a class is a method, as a function is."""
        return self if instance is None else BoundTaskFunction(self, instance)

    @property
    def __wrapped__(self):
        return self.fn

    def on(self, place):
        """Return the same function running at `place`, or where a logical data is valid."""
        if type(place) is ExecPlace and place.kind in FIXED:
            place = place.index if place.kind == "device" else place.kind
        if type(place) is not int and type(place) is not str:
            return self.at(place)
        known: TaskFunction = None if self.variants is None else self.variants.get(place)
        if known is not None and known.symbol is self.symbol:
            return known
        known = self.at(place)
        known.is_fixed = True
        if self.variants is None or len(self.variants) >= MOST_VARIANTS:
            self.variants = {}
        self.variants[place] = known
        return known

    def at(self, place):
        """Return a new function that runs at a place."""
        copy: TaskFunction = self.copy()
        copy.where = place
        return copy

    def named(self, symbol):
        """Return the same function whose tasks are called `symbol`."""
        copy: TaskFunction = self.copy()
        copy.symbol = name_of(symbol)
        return copy

    def with_priority(self, priority):
        """Return the same function whose tasks have a priority; see `Context.task`."""
        copy: TaskFunction = self.copy()
        copy.priority = priority_of(priority)
        return copy

    def copy(self):
        copy: TaskFunction = TaskFunction.__new__(TaskFunction)
        copy.fn, copy.priority = self.fn, self.priority
        copy.symbol, copy.arrays_of, copy.library = self.symbol, self.arrays_of, self.library
        copy.where, copy.is_fixed = self.where, self.is_fixed
        copy.in_graphs, copy.pure = self.in_graphs, self.pure
        copy.closes, copy.wraps, copy.reads, copy.holds = self.closes, self.wraps, self.reads, self.holds
        copy.runs, copy.owes, copy.taken, copy.writes = self.runs, self.owes, self.taken, self.writes
        if cython.compiled:
            copy.vectorcall = self.vectorcall
        copy.parameters, copy.given, copy.results = self.parameters, self.given, self.results
        copy.makes, copy.alone = self.makes, self.alone
        copy.signature, copy.kinds, copy.kinds_of_all = self.signature, self.kinds, self.kinds_of_all
        copy.likes, copy.returns_one, copy.binds_late = self.likes, self.returns_one, self.binds_late
        copy.lends, copy.draws, copy.positional, copy.accessed = self.lends, self.draws, self.positional, self.accessed
        copy.takes_task, copy.movable, copy.injected = self.takes_task, self.movable, self.injected
        copy.has_elements, copy.is_checked = self.has_elements, self.is_checked
        copy.trails, copy.trails_data = self.trails, self.trails_data
        return copy

    def __call__(self, *args, **kwargs):
        task: Task = Task.__new__(Task)
        task.find_site()
        return self.call(None, task, list(args), kwargs)

    def call(self, context, task, values, kwargs):
        """Submit one task; return its handle, or the new data that it returns.

        The list of its arguments becomes that of the body's.
        """
        if self.parameters is None:
            self.parse()
        if kwargs or not self.positional or len(values) != self.given:
            values = self.bind(values, kwargs)
        if self.results is not None:
            return self.make_results(context, task, values)
        self.submit(context, task, values)
        return task

    def make_results(self, context, task, values):
        """Submit a task that writes new data; return these."""
        i: cython.int
        if len(values) == self.given:
            values += [None] * self.makes
        engine: Engine = None
        layouts: list = None
        made: list = None
        for i in range(self.makes):
            layout: Layout = layout_like(values[self.likes[i]]) if layouts is None and self.likes is not None else None
            if layout is None:
                if layouts is None:
                    layouts = self.layouts_of(values[: self.given])
                layout = layouts[i]
            if engine is None:
                engine = self.engine_of(context, values)
            core: Data = engine.new_data(layout, None, False)
            core.is_result = True
            values[self.given + i] = new_handle(core)
        if not self.returns_one:
            made = values[self.given :]
        handle: DataHandle = values[self.given]
        engine.has_results = True
        self.submit(context, task, values)  # which puts arrays in place of the data
        if made is None:
            handle.core.is_result = handle.core.layout.dtype is None
            return handle
        for i in range(len(made)):
            core = cython.cast(DataHandle, made[i]).core
            core.is_result = core.layout.dtype is None
        return self.results.given(made)

    def layouts_of(self, values):
        """Return the layouts of new data for a call with any arguments."""
        for parameter, value in zip(self.parameters, values, strict=False):
            if cython.cast(Parameter, parameter).mode and not isinstance(value, (DataHandle, Access)):
                self.add_container([], parameter, value)  # which raises for what is no data
        return self.results.layouts(self.symbol, self.parameters, values)

    def engine_of(self, context, values):
        """Return the engine of a context, or of the first data among arguments."""
        if context is not None:
            owner: ContextCore = context
            return owner.engine
        for value in values:
            if isinstance(value, DataHandle):
                return cython.cast(DataHandle, value).core.engine
        for data in data_in(values):
            return cython.cast(DataHandle, data).core.engine
        raise self.without_data()

    def submit(self, context, task, values):
        """Submit one task with an argument for each parameter."""
        task.symbol = self.symbol
        task.in_graphs = self.in_graphs
        if self.accessed < len(values) and gives_accesses(self.parameters, values):
            return self.for_accesses(values).submit(context, task, values)
        if self.draws:
            count_draws(self.parameters, values)
        if self.kinds is not None and not self.trails_data:
            check_variadic(self.symbol, self.parameters, self.kinds, values)
        if self.has_elements:
            check_elements(self.parameters, values, self.symbol)
        after = task.accesses  # of what it comes after, which none of its arguments is
        shapes = self.walk(task, values)
        if after:
            task.accesses += after
        if not self.is_checked:
            self.look_at_globals(task)
        lent = data_lent(self.parameters, values) if self.lends else None
        if context is None and lent and not task.accesses:
            context = lent[0].context
        self.adopt(task, context)
        if lent:
            lend(task, lent)
        if self.draws:
            check_draws(self.parameters, values, task.context, self.symbol)
        if self.holds:
            refuse_undeclared(self.fn, task)
        fn = snapshot(self.runs, task) if self.closes else self.runs
        engine = cython.cast("Engine", task.engine)
        if engine.scope.submitted is not None:
            engine.scope.submitted.append(self.fn)
        if len(values) > self.accessed or shapes is not None:
            check_params(engine, values, self.kinds)
            refuse_registered(self.parameters, values, task)
        if task.where < 0:
            return self.hold(task, fn, values, shapes)
        if self.pure and not lent and not after and takes_pure(task, self, fn, values, shapes):
            return 0
        return self.go_on(task, fn, values, shapes, False)

    def hold(self, task, fn, values, shapes):
        """Keep a call until its place is known, with the variables that it reads as they are now."""
        call: HeldCall = HeldCall.__new__(HeldCall)
        call.function, call.values, call.shapes = self, values, shapes
        call.fn = self.with_globals(fn) if self.reads else fn
        return hold(task, call)

    def go_on(self, task, fn, values, shapes, was_held):
        """Begin a task whose place is settled, and submit its body; one that `was_held` has the variables it reads."""
        body = None
        engine = cython.cast("Engine", task.engine)
        if engine.has_results:
            task.binds_late = self.binds_late and shapes is None and engine.adopts and is_of_numpy(engine, task)
            if has_open(task):
                must_bind_late(engine, task, self.symbol)
        if engine.watches:
            capsules.offer_call(task, self, self.parameters, self.kinds, values[: self.given], len(values))
        try:
            begin_body(task, fn if self.movable or may_move(engine, self.injected) else None)
            if self.reads and not was_held and not task.runs_in_call:
                fn = self.with_globals(fn)
            once: cython.bint = gathers(engine.scope) and not task.runs_in_call  # never launched on other data
            argument_sources = None if once or not engine.scope.records else []
            late = self.put_arrays(task, values, shapes, argument_sources)
            if late is not None or self.kinds_of_all is not None or not runs_plainly(task, values):
                body = self.body_of(task, fn, values, late, None if self.takes_task else argument_sources)
                self.keep(values)  # the body has a tuple of them
        except TaskFailedError as error:
            take_back(task)
            return outcomes.skip(engine, task, error)
        except BaseException:
            take_back(task)
            raise
        if body is None:
            self.run_plainly(engine, task, fn, values)
        else:
            submit(task, body)
        return 0

    def body_of(self, task, fn, values, late, argument_sources):
        """Return the body of a task that is more than a call."""
        engine = cython.cast("Engine", task.engine)
        made = values[self.given] if self.makes == 1 else None
        is_slot: cython.bint = type(made) is ResultSlot
        is_flat: cython.bint = self.trails_data and late is None and argument_sources is None
        in_place: cython.bint = late is None and self.results is None and self.writes is not None and not is_flat
        written = None if is_slot or in_place else self.written(values)
        if written is not None:
            untrack(written)  # only the body has it, which the collector does not look into either
        if self.results is not None and not (engine.scope.records or self.results.takes_out):
            body = make_body(task, fn, first_of(values, self.given), written, self.kinds, late, None, self.owes)
        elif is_flat:
            body = make_body(task, fn, flattened(values), written, None, late, None, self.owes)
        else:
            body = make_body(task, fn, values, written, self.kinds_of_all, late, argument_sources, self.owes)
        body.results, body.made = self.results, made if is_slot else None
        body.writes = self.writes if in_place else None
        return body

    def with_globals(self, fn):
        """`fn`, which is the function or a copy of it, with numbers and strings of its module as they are now."""
        if self.wraps:
            return with_globals(fn)
        taken: Taken = self.taken
        if taken is None or not taken.is_same():
            self.taken = taken = Taken(self.fn)
        if taken.variables is None:
            return fn
        if self.closes:
            return with_cells(fn, fn.__closure__, taken.variables)
        if taken.copy is None:
            taken.copy = with_cells(fn, None, taken.variables)
        return taken.copy

    def walk(self, task, values):
        """Turn arguments into accesses; return the shapes of containers by parameter, or None."""
        i: cython.int
        shapes = None
        task.accesses = self.accesses_of(values)
        if task.accesses is not None:
            last: cython.int = self.given - 1
            return {last: ("flat", tuple, len(values[last]))} if self.trails_data else None
        accesses = []
        for i in range(len(values)):
            parameter: Parameter = self.parameters[i]
            value = values[i]
            if parameter.mode:
                if isinstance(value, DataHandle):
                    self.add(accesses, parameter, value)
                else:
                    shape = self.add_flat(accesses, parameter, value)
                    if shape is None:
                        shape = self.add_container(accesses, parameter, value)
                    if shape is not None:
                        if shapes is None:
                            shapes = {}
                        shapes[i] = shape
            elif not (parameter.takes_data or is_plain(value)):
                raise without_mode(self.symbol, parameter, value)
        task.accesses = tuple(accesses)
        return shapes

    def for_accesses(self, values):
        """The same function, whose parameters without an annotation are used as the accesses among arguments say."""
        modes = tuple([mode_of_accesses(*pair) for pair in zip(values, self.parameters, strict=True)])
        if self.by_modes is None:
            self.by_modes = {}
        function: TaskFunction = self.by_modes.get(modes)
        if function is None:
            function = self.copy()
            function.parameters = []
            for item, (mode, op) in zip(self.parameters, modes, strict=True):
                parameter: Parameter = item
                if mode:
                    parameter = Parameter(parameter.name, parameter.kind, mode, op)
                    parameter.takes_any = True
                function.parameters.append(parameter)
            function.accessed = sum([cython.cast(Parameter, item).mode != 0 for item in function.parameters])
            function.look_for_lost_results()
            self.by_modes[modes] = function
        return function

    def without_data(self):
        """Return the error for a call from which nobody can tell the context."""
        return TypeError(
            f"task '{self.symbol}' was called without logical data, so its context is unknown; pass some, or use "
            "ctx.submit_task"
        )

    def accesses_of(self, values):
        """Return the accesses of a call whose data are one handle per parameter, or further ones of ``*args``.

        None if it is another, or a wrong one.
        """
        i: cython.int
        count: cython.int = 0
        found: tuple = PyTuple_New(self.accessed - self.trails_data) if cython.compiled else ()
        if cython.compiled:
            untrack(found)  # it has holes, and accesses are not tracked either
        for i in range(len(values)):
            parameter = cython.cast(Parameter, self.parameters[i])
            value = values[i]
            if parameter.mode == 0:
                if type(value) is float or type(value) is int or parameter.takes_data:
                    continue
                if not is_plain(value):
                    return None
                continue
            if self.trails_data and i == self.given - 1:
                return with_further(found, parameter, value)
            if parameter.mode == ACCUMULATE or not isinstance(value, DataHandle):
                return None
            core: Data = cython.cast(DataHandle, value).core
            if not core.is_result or core.layout.dtype is not None:
                access = make_access(cython.cast(DataHandle, value), parameter.mode, None)
            elif i >= self.given or parameter.mode != WRITE:
                access = access_when_known(value, parameter.mode)
            else:
                raise must_have_shape(core)
            if cython.compiled:
                Py_INCREF(access)
                PyTuple_SET_ITEM(found, count, access)
            else:
                found += (access,)
            count += 1
        return found

    def put_arrays(self, task, values, shapes, argument_sources):
        """Put the task's arrays in place of its data; return the positions of what is built when the body runs."""
        i: cython.int
        first: cython.int = 0
        is_late: cython.bint
        late = None
        shared = library_of(task, self.library)
        engine = cython.cast("Engine", task.engine)
        for i in range(len(values)):
            parameter = cython.cast(Parameter, self.parameters[i])
            is_late = False
            if parameter.mode:
                lib = parameter.library or shared
                if task.binds_late and (value := late_array(task, first, i >= self.given)) is not None:
                    first += 1
                    is_late = i < self.given
                elif shapes is None or i not in shapes:
                    value = view_of(task, first, lib)
                    if argument_sources is not None and value is not TOKEN:
                        argument_sources.append(source_of(task, first, lib, i))
                    first += 1
                    if value is TOKEN:
                        value = None
                    is_late = type(value) is JAX_COPY
                else:
                    value = self.container(task, first, i, shapes[i], lib, argument_sources)
                    first += leaves(shapes[i])
                    is_late = type(value) is Parts
                values[i] = value
            elif parameter.kind == "random":
                values[i], is_late = generator_at(engine.place(task.where), shared or engine.arrays, values[i])
            elif parameter.kind == "stream" or parameter.kind == "task":
                values[i] = injected_value(parameter.kind, task)
            if is_late:
                late = self.alone[i] if late is None else [*late, i]
        return late

    def container(self, task, first, position, shape, lib, argument_sources):
        """Return the arrays of a container, or what makes it when the body runs."""
        parameter: Parameter = self.parameters[position]
        if shape[0] == "plain":
            return None
        if shape[0] == "flat" and parameter.mode == READ and argument_sources is None and lib != "jax":
            found = views_between(task, first, shape[2], lib, None)
            return tuple(found) if shape[1] is tuple else found
        if parameter.mode != READ and (lib or task.engine.arrays) == "jax":
            refuse_container(self.symbol, parameter.name)
        count = leaves(shape)
        libs = libraries(shape, lib, parameter.library or self.library)
        if argument_sources is not None:
            argument_sources.extend(sources_of(task, first, count, libs, position))
        return Parts([view_of(task, first + k, libs[k]) for k in range(count)], shape)

    def run_plainly(self, engine, task, fn, values):
        """Run a body that is no more than a call, on the task's stream; see `running.run_now`."""
        error: BaseException = None
        borrowed: Borrowed = None
        try:
            borrowed = borrow(engine.port.stream(task.slot), engine.place(task.where).ordinal)
            result = stf_call_with(fn, values) if cython.compiled else fn(*values)
            if result is not None or self.owes:
                store_results(result, self.written(values), fn, values, self.owes)
        except BaseException as exception:
            error = exception
        self.keep(values)
        return end_now(engine, task, borrowed, error)

    def keep(self, values):
        """Keep the list of a call that is over for the next one, without what it held."""
        i: cython.int
        for i in range(len(values)):
            values[i] = None
        self.spare = values
        return 0

    def written(self, values):
        """Return the arrays that results go to.

        Those of new data, else of parameters that are written; tokens skipped.
        """
        i: cython.int
        found = []
        if self.results is not None:
            return values[self.given :]
        for i in range(len(values)):
            parameter: Parameter = self.parameters[i]
            if parameter.mode and parameter.mode != READ and values[i] is not None:
                found.append(values[i])
        return found

    def add(self, accesses: list, parameter: Parameter, value):
        """Add the access to data that a parameter's mode says."""
        if parameter.takes_any:
            raise without_mode(self.symbol, parameter, value)
        if parameter.mode == ACCUMULATE:
            accesses.append(accumulate_access(value, parameter.op))
        else:
            accesses.append(make_access(value, parameter.mode, None))
        return 0

    def add_flat(self, accesses: list, parameter: Parameter, value):
        """Accesses for a list or tuple of data alone; None for anything else, of which nothing was added."""
        if (
            (type(value) is not list and type(value) is not tuple)
            or parameter.takes_any
            or parameter.mode == ACCUMULATE
        ):
            return None
        before: cython.int = len(accesses)
        for item in value:
            if not isinstance(item, DataHandle):
                del accesses[before:]
                return None
            accesses.append(make_access(cython.cast(DataHandle, item), parameter.mode, None))
        return ("flat", type(value), len(value))

    def add_container(self, accesses: list, parameter, value):
        """Accesses for a list, tuple, dict or dataclass of data; the shape tells how to build it again."""
        if isinstance(value, DataHandle):
            self.add(accesses, parameter, value)
            return None
        if isinstance(value, Access):
            check_access(self.symbol, parameter, value, value.op)
            accesses.append(value)
            return None
        if hasattr(value, "expand_mode"):
            parts = value.expand_mode(parameter.mode)
            accesses.extend(parts)
            return ("parts", len(parts), value.rebuild)
        if hasattr(value, "expand"):
            check_access(self.symbol, parameter, value, None)
            accesses.extend(value.expand())
            return ("parts", len(value.parts), value.rebuild)
        container = split(value)
        if container is not None:
            kind, what, items = container
            add = self.add_field if kind == "dataclass" else self.add_container
            return kind, what, [add(accesses, parameter, item) for item in items]
        if value is None and parameter.optional:
            return ("plain", None, None)
        raise not_data(self.symbol, parameter, value)

    def add_field(self, accesses: list, parameter, value):
        """Return the shape of a field of a dataclass, which may mix data and plain values."""
        has_data = is_container(value) and next(data_in([value]), None) is not None
        is_data = isinstance(value, (DataHandle, Access)) or hasattr(value, "expand_mode")
        if is_data or has_data or is_object_of_data(value):
            return self.add_container(accesses, parameter, value)
        if isinstance(value, Asked):
            value.must_be_recorded()
        return ("plain", value, None)

    def adopt(self, task, context):
        """The context comes from the data, the place from `.on`, or from the context."""
        if context is None:
            if not task.accesses:
                raise self.without_data()
            access = cython.cast(Access, task.accesses[0])
            engine = cython.cast("Engine", access.core.engine)
            context = check_context(stf_referent(engine.context) if cython.compiled else engine.context(), access.core)
        if owed:
            return_owed()
        owner: ContextCore = context
        task.context = owner
        task.engine = owner.engine
        place_as_function(task, owner, self.where, self.is_fixed)
        task.priority = self.priority
        if task.where < 0 and owner.engine.has_results:
            settle_open(task)
        if task.where < 0 and not can_be_held(task):
            settle(task)
        return 0

    def look_at_globals(self, task):
        """Look once whether the function takes data from its module."""
        if hasattr(self.fn, "__code__"):
            check_globals(self.fn, task)
        self.is_checked = True
        return 0

    # -- the signature -----------------------------------------------------------------------------------------

    def parse(self):
        """Read the access modes off the annotations, once."""
        fn = self.fn
        self.signature, self.results = inspect.signature(fn), results_of(fn, self.symbol)
        parameters, kinds = self.read_parameters()
        self.kinds = kinds if any(kind in ("*", "**", "keyword") for _, kind in kinds) else None
        others = [(i, kind) for i, (_, kind) in enumerate(kinds) if kind not in ("plain", "random")]
        self.positional, self.trails = not others, others == [(len(kinds) - 1, "*")]
        self.trails_data = self.trails and self.results is None and parameters[len(kinds) - 1].mode != 0
        self.draws = any(mine.kind == "random" for mine in parameters)
        self.takes_task = any(kind == "task" for _, kind in kinds)  # which a body may ask for its data
        self.injected = [kind for _, kind in kinds if kind in ("stream", "task")]
        self.movable = not self.injected  # to another thread, before it runs
        self.given, self.makes = len(parameters), 0
        self.kinds_of_all = self.kinds
        if self.results is not None:
            self.add_results(parameters, kinds)
        self.accessed = sum(mine.mode != 0 for mine in parameters)
        self.has_elements = any(mine.element is not None for mine in parameters)
        named = {mine.library for mine in parameters if mine.library is not None}
        self.library = self.arrays_of or (next(iter(named)) if len(named) == 1 else None)
        self.lends = any(mine.takes_data for mine in parameters)
        takes_out = self.results is not None and self.results.takes_out
        self.binds_late = self.movable and not takes_out and not {self.arrays_of, *named} - {None, "numpy"}
        self.alone = [[i] for i in range(len(parameters))]
        self.parameters = parameters
        self.look_for_lost_results()

    def read_parameters(self):
        """Return the parameters of the function, and their names and kinds; its signature has those that are passed."""
        fn, parameters, passed, kinds = self.fn, [], [], []
        for name, parameter in self.signature.parameters.items():
            if self.results is not None and self.results.takes(fn, name, parameter):
                continue
            mine: Parameter = Parameter(*read_annotation(fn, name, parameter))
            parameters.append(mine)
            kinds.append((name, "keyword" if parameter.kind is parameter.KEYWORD_ONLY else mine.kind))
            if mine.kind not in ("stream", "task"):
                passed.append(parameter)
        self.signature = self.signature.replace(parameters=passed)
        return parameters, kinds

    def add_results(self, parameters: list, kinds: list):
        """Add a parameter for each new data that the function returns."""
        kind = "out" if self.results.takes_out else "result"
        parameters += [Parameter(f"result {i}", kind, WRITE) for i in range(len(self.results.parts))]
        self.kinds_of_all = kinds + [(mine.name, mine.kind) for mine in parameters[self.given :]]
        self.likes, self.returns_one = self.results.likes(parameters), self.results.kind == "one"
        self.makes = len(self.results.parts)

    def look_for_lost_results(self):
        """Raise for what is certain to be lost, and see to what may be when the function runs."""
        if not self.takes_task:  # by which it may write
            modes = [cython.cast(Parameter, item).mode for item in self.parameters[: self.given]]
            modes += [WRITE] if self.results is not None and self.results.takes_out else []  # `out` is the last
            try:
                self.owes = refuse_lost(self.fn, self.symbol, modes)
            except TypeError:
                self.parameters = None  # each call says so
                raise
            self.runs = with_last_values(self.fn, modes)
        self.owes = self.owes or (self.results is not None and not self.results.takes_out)
        self.writes = tuple([i for i, item in enumerate(self.parameters) if cython.cast(Parameter, item).mode & ~READ])

    def bind(self, args, kwargs):
        """Put keyword and default arguments where they belong; None where one is injected."""
        if self.trails and not kwargs and len(args) >= self.given - 1:  # all parameters before ``*args`` are given
            return [*args[: self.given - 1], tuple(args[self.given - 1 :])]
        try:
            bound = self.signature.bind(*args, **(kwargs or {}))
        except TypeError as error:
            raise TypeError(f"task '{self.symbol}': {error}") from None
        bound.apply_defaults()
        return [bound.arguments.get(p.name) for p in self.parameters[: self.given]]

    def __dir__(self):
        return ["named", "on", "symbol", "with_priority"]

    def __repr__(self):
        return f"<stf.task {self.symbol}>"


def vectorcall(function, given, count, names):
    """Return what `TaskFunction.__call__` does, as Python's vectorcall protocol has it.

    No tuple and no dict are made.
    """
    i: cython.int
    size: cython.int = PyVectorcall_NARGS(count)
    room: cython.int = size  # and what new data need, which the body gets after the arguments
    if function.makes and names == cython.NULL and size == function.given and function.positional:
        room += function.makes
    values: list = function.spare
    function.spare = None
    if values is None or len(values) != room:
        values = [None] * room
    for i in range(size):
        values[i] = cython.cast(object, given[i])
    kwargs: dict = None
    if names != cython.NULL:
        keys: tuple = cython.cast(tuple, names)
        kwargs = {keys[i]: cython.cast(object, given[size + i]) for i in range(len(keys))}
    task: Task = Task.__new__(Task)
    task.find_site()
    if room > size:
        return function.make_results(None, task, values)
    return function.call(None, task, values, kwargs)


def use_vectorcall():
    """Have Python call task functions through the protocol."""
    function: TaskFunction = TaskFunction.__new__(TaskFunction)
    stf_use_vectorcall(function, cython.address(function.vectorcall))


if cython.compiled:
    use_vectorcall()


@cython.final
@cython.cclass
class HeldCall:
    """The rest of a call whose task is held until it is planned."""

    def __call__(self, task):
        self.function.go_on(task, self.fn, self.values, self.shapes, True)


class BoundTaskFunction:
    """A task function as the method of an object, which becomes its first argument."""

    def __init__(self, function, instance):
        self.function = function
        self.instance = instance

    def __call__(self, *args, **kwargs):
        task: Task = Task.__new__(Task)
        task.find_site()
        return self.function.call(None, task, [self.instance, *args], kwargs)

    def __eq__(self, other):
        """As bound methods, which are made at each reading."""
        if type(other) is not BoundTaskFunction:
            return NotImplemented
        bound: BoundTaskFunction = other
        return self.instance is bound.instance and self.function is bound.function

    def __hash__(self):
        return hash((id(self.instance), id(self.function)))

    def on(self, place):
        """Return the same method running at `place`, or where a logical data is valid."""
        return BoundTaskFunction(self.function.on(place), self.instance)

    def named(self, symbol):
        """Return the same method whose tasks are called `symbol`."""
        return BoundTaskFunction(self.function.named(symbol), self.instance)

    def with_priority(self, priority):
        """Return the same method whose tasks have a priority."""
        return BoundTaskFunction(self.function.with_priority(priority), self.instance)

    def __getattr__(self, name):
        return getattr(self.function, name)
