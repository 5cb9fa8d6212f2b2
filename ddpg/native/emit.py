"""A scheduled program as LLVM's text: a function for each loop, and one that runs them for every update."""

from collections.abc import Sequence

from ddpg.native.functions import DECLARATIONS, FLAGS, FUNCTIONS, ZERO, Lines, number
from ddpg.native.memory import Layout
from ddpg.native.product import ProductFunction, Registers
from ddpg.native.program import ALL, COLUMNS, ROWS, Item, Shape, Value, Write
from ddpg.native.schedule import Loop, Step

ENTRY = "run"


class Module:
    """A program as text: ``void run(int64 count, float* block, float* field..., float* sums)``.

    Args:
        steps: of one update.
        layout: of the block.
        fields: names of the minibatch's parts, and how many numbers of each an update reads.
        outputs: scalars, of which ``sums`` gets the sums over the updates.
        machine: what its registers hold.

    Attributes:
        text: the module.
        scratch: floats that products need, behind the layout's block.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        layout: Layout,
        fields: Sequence[tuple[str, int]],
        outputs: Sequence[Value],
        machine: Registers,
    ):
        self._layout, self._machine = layout, machine
        self._functions: list[str] = []
        self._products: dict[tuple, ProductFunction] = {}
        self._places: dict[str, str] = {}
        self._main = main = Lines()
        names = [f"%field{index}" for index in range(len(fields))]
        arguments = ["i64 %count", "ptr %block", *(f"ptr {name}" for name in names), "ptr %sums"]
        main.label("entry")
        main.do("br label %update")
        main.label("update")
        main.do("%k = phi i64 [0, %entry], [%next, %update]")
        main.do(f"%scratch = getelementptr float, ptr %block, i64 {layout.size}")
        for name, (field, size) in zip(names, fields, strict=True):
            offset = main.add(f"mul nuw nsw i64 %k, {size}")
            self._places[f"field {field}"] = main.add(f"getelementptr float, ptr {name}, i64 {offset}")
        for index, step in enumerate(steps):
            self._step(step, index)
        for index, output in enumerate(outputs):
            self._add_up(output, index)
        main.do("%next = add nuw nsw i64 %k, 1")
        main.do("%over = icmp eq i64 %next, %count")
        main.do("br i1 %over, label %end, label %update")
        main.label("end")
        main.do("ret void")
        body = "\n".join(main.lines)
        entry = f"define void @{ENTRY}({', '.join(arguments)}) nounwind {{\n{body}\n}}"
        products = [function.text for function in self._products.values()]
        self.text = "\n\n".join([DECLARATIONS, *self._functions, *products, entry])
        self.scratch = max((function.scratch for function in self._products.values()), default=0)

    def _step(self, step: Step, index: int) -> None:
        if isinstance(step, Loop):
            loop = LoopFunction(f"loop{index}", step, self._layout)
            self._functions.append(loop.text)
            self._call(f"loop{index}", [self._place(key, value) for key, value in loop.parameters.items()])
            return
        given = [self._place(memory_of(value.base), value) for value in (*step.arguments, step)]
        if step.kind == "join":
            self._functions.append(_join_function(f"join{index}", step))
            self._call(f"join{index}", given)
            return
        shape = *step.shape, step.arguments[0].shape[0 if step.detail[0] else 1]
        key = shape, step.detail
        if key not in self._products:
            self._products[key] = ProductFunction(f"product{len(self._products)}", shape, step.detail, self._machine)
        self._call(f"product{list(self._products).index(key)}", [*given, "%scratch"])

    def _add_up(self, output: Value, index: int) -> None:
        main = self._main
        total = main.add(f"getelementptr float, ptr %sums, i64 {index}")
        if output.kind == "literal":
            value = number(output.detail)
        else:
            value = main.add(f"load float, ptr {self._place(memory_of(output.base), output)}")
        before = main.add(f"load float, ptr {total}")
        main.do(f"store float {main.add(f'fadd float {before}, {value}')}, ptr {total}")

    def _call(self, name: str, pointers: Sequence[str]) -> None:
        self._main.do(f"call void @{name}({', '.join(f'ptr {pointer}' for pointer in pointers)})")

    def _place(self, key: str, value: Value) -> str:
        """Return the address of the memory that is called ``key``, and where ``value`` lives."""
        if key not in self._places:
            kind, _, rest = key.partition(" ")
            offset = self._layout.variables[int(rest)] if kind == "variable" else self._layout.values[id(value.base)]
            self._places[key] = self._main.add(f"getelementptr float, ptr %block, i64 {offset}")
        return self._places[key]


def memory_of(base: Value) -> str:
    """Return a name for the memory of a value: one variable has one, whatever its version."""
    if base.kind == "stored":
        return f"variable {base.detail[0]}"
    return f"field {base.detail}" if base.kind == "field" else f"value {id(base)}"


def _join_function(name: str, step: Value) -> str:
    lines = Lines()
    width, before, block = step.shape[1], 0, "entry"
    lines.label("entry")
    for index, part in enumerate(step.arguments):
        rows, columns = part.shape
        lines.do(f"br label %part{index}")
        lines.label(f"part{index}")
        lines.do(f"%i{index} = phi i64 [0, %{block}], [%i{index}.next, %part{index}.end]")
        lines.do(f"br label %part{index}.columns")
        lines.label(f"part{index}.columns")
        lines.do(f"%j{index} = phi i64 [0, %part{index}], [%j{index}.next, %part{index}.columns]")
        source = lines.add(f"add i64 {lines.add(f'mul i64 %i{index}, {columns}')}, %j{index}")
        value = lines.add(f"load float, ptr {lines.add(f'getelementptr float, ptr %p{index}, i64 {source}')}")
        goal = lines.add(f"add i64 {lines.add(f'mul i64 %i{index}, {width}')}, %j{index}")
        goal = lines.add(f"add i64 {goal}, {before}")
        lines.do(f"store float {value}, ptr {lines.add(f'getelementptr float, ptr %out, i64 {goal}')}")
        lines.do(f"%j{index}.next = add nuw nsw i64 %j{index}, 1")
        over = lines.add(f"icmp eq i64 %j{index}.next, {columns}")
        lines.do(f"br i1 {over}, label %part{index}.end, label %part{index}.columns")
        lines.label(f"part{index}.end")
        lines.do(f"%i{index}.next = add nuw nsw i64 %i{index}, 1")
        block = f"after{index}"
        over = lines.add(f"icmp eq i64 %i{index}.next, {rows}")
        lines.do(f"br i1 {over}, label %{block}, label %part{index}")
        lines.label(block)
        before += columns
    lines.do("ret void")
    parameters = ", ".join(f"ptr noalias %p{index}" for index in range(len(step.arguments)))
    return (
        f"define internal void @{name}({parameters}, ptr noalias %out) noinline nounwind {{\n"
        + "\n".join(lines.lines)
        + "\n}"
    )


class LoopFunction:
    """A loop as a function of the memories that it touches.

    Attributes:
        parameters: those memories in order, by name, with a value that lives there.
        text: the function.
    """

    def __init__(self, name: str, loop: Loop, layout: Layout):
        self.parameters: dict[str, Value] = {}
        self._layout = layout
        self._lines = Lines()
        self._registers: dict[int, str] = {}
        self._written: dict[tuple[int, int], str] = {}
        self._rows, self._columns = (1, loop.space[0] * loop.space[1]) if _is_flat(loop) else loop.space
        self._flat = _is_flat(loop)
        body = self._body(loop)
        pointers = ", ".join(f"ptr noalias %p{index}" for index in range(len(self.parameters)))
        self.text = f"define internal void @{name}({pointers}) noinline nounwind {{\n{body}\n}}"

    def _body(self, loop: Loop) -> str:
        lines = self._lines
        sums = [member for member in loop.members if isinstance(member, Value) and member.kind == "sums"]
        lines.label("entry")
        for index, total in enumerate(sums):
            if total.detail == ROWS:
                lines.do(
                    f"call void @llvm.memset.p0.i64(ptr {self._pointer(total)}, i8 0, i64 {4 * total.size}, i1 false)"
                )
            else:
                lines.do(f"%sum{index} = alloca float")
                lines.do(f"store float {ZERO}, ptr %sum{index}")
        lines.do("br label %rows")
        lines.label("rows")
        lines.do("%i = phi i64 [0, %entry], [%i.next, %rows.end]")
        lines.do(f"%row = mul nuw nsw i64 %i, {self._columns}")
        for index, total in enumerate(sums):
            if total.detail == COLUMNS:
                lines.do(f"store float {ZERO}, ptr %sum{index}")
        lines.do("br label %columns")
        lines.label("columns")
        lines.do("%j = phi i64 [0, %rows], [%j.next, %columns]")
        lines.do("%at = add nuw nsw i64 %row, %j")
        for member in loop.members:
            self._member(member, sums)
        lines.do("%j.next = add nuw nsw i64 %j, 1")
        lines.do(f"%j.over = icmp eq i64 %j.next, {self._columns}")
        lines.do("br i1 %j.over, label %rows.end, label %columns")
        lines.label("rows.end")
        for index, total in enumerate(sums):
            if total.detail == COLUMNS:
                self._store(lines.add(f"load float, ptr %sum{index}"), total, "%i")
        lines.do("%i.next = add nuw nsw i64 %i, 1")
        lines.do(f"%i.over = icmp eq i64 %i.next, {self._rows}")
        lines.do("br i1 %i.over, label %end, label %rows")
        lines.label("end")
        for index, total in enumerate(sums):
            if total.detail == ALL:
                self._store(lines.add(f"load float, ptr %sum{index}"), total, "0")
        lines.do("ret void")
        return "\n".join(lines.lines)

    def _member(self, member: Item, sums: Sequence[Value]) -> None:
        lines = self._lines
        if isinstance(member, Write):
            value = self._read(member.value)
            self._written[member.variable, member.version + 1] = value
            pointer = self._parameter(f"variable {member.variable}", member.value)
            lines.do(f"store float {value}, ptr {lines.add(f'getelementptr float, ptr {pointer}, i64 %at')}")
            return
        if member.kind == "sums":
            value = self._read(member.arguments[0])
            if member.detail == ROWS:
                total = lines.add(f"getelementptr float, ptr {self._pointer(member)}, i64 %j")
            else:
                total = f"%sum{next(index for index, other in enumerate(sums) if other is member)}"
            added = lines.add(f"fadd {FLAGS} float {lines.add(f'load float, ptr {total}')}, {value}")
            lines.do(f"store float {added}, ptr {total}")
            return
        if member.kind == "window":
            value = self._window(member)
        else:
            value = FUNCTIONS[member.detail](lines, *map(self._read, member.arguments))
        self._registers[id(member)] = value
        if id(member) in self._layout.values:
            self._store(value, member, "%at")

    def _window(self, member: Value) -> str:
        (source,) = member.arguments
        row, column = member.detail
        lines = self._lines
        start = lines.add(f"mul i64 {lines.add(f'add i64 %i, {row}')}, {source.shape[1]}")
        at = lines.add(f"add i64 {lines.add(f'add i64 {start}, {column}')}, %j")
        return lines.add(f"load float, ptr {lines.add(f'getelementptr float, ptr {self._pointer(source)}, i64 {at}')}")

    def _read(self, value: Value) -> str:
        if value.kind == "literal":
            return number(value.detail)
        if value.kind == "stored" and value.detail in self._written:
            return self._written[value.detail]
        if id(value) not in self._registers:
            pointer = self._pointer(value)
            at = self._place(value.shape)
            lines = self._lines
            self._registers[id(value)] = lines.add(
                f"load float, ptr {lines.add(f'getelementptr float, ptr {pointer}, i64 {at}')}"
            )
        return self._registers[id(value)]

    def _place(self, shape: Shape) -> str:
        if shape == (1, 1):
            return "0"
        if self._flat or shape == (self._rows, self._columns):
            return "%at"
        return "%j" if shape[0] == 1 else "%i"

    def _store(self, register: str, value: Value, at: str) -> None:
        pointer = self._lines.add(f"getelementptr float, ptr {self._pointer(value)}, i64 {at}")
        self._lines.do(f"store float {register}, ptr {pointer}")

    def _pointer(self, value: Value) -> str:
        return self._parameter(memory_of(value.base), value)

    def _parameter(self, key: str, value: Value) -> str:
        self.parameters.setdefault(key, value)
        return f"%p{list(self.parameters).index(key)}"


def _is_flat(loop: Loop) -> bool:
    """Tell whether every place stands for itself: rows and columns do not matter then."""
    for member in loop.members:
        arguments = (member.value,) if isinstance(member, Write) else member.arguments
        if isinstance(member, Value) and (member.kind == "window" or (member.kind == "sums" and member.detail != ALL)):
            return False
        if any(argument.shape not in (loop.space, (1, 1)) for argument in arguments):
            return False
    return True
