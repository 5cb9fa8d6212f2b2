"""A scheduled program as LLVM's text: a function for each loop, and one that runs them for every update."""

from collections.abc import Sequence

from ddpg.native.functions import DECLARATIONS, FLAGS, FUNCTIONS, ZERO, Lines, number
from ddpg.native.memory import Layout
from ddpg.native.program import ALL, COLUMNS, ROWS, Item, Shape, Value, Write
from ddpg.native.schedule import Loop, Step

ENTRY = "run"
PRODUCT = "ddpg_sgemm"  # BLAS, by the conventions of Fortran


def emit(steps: Sequence[Step], layout: Layout, fields: Sequence[tuple[str, int]], outputs: Sequence[Value]) -> str:
    """Return a module with ``void run(int64 count, float* block, float* field..., float* sums)``.

    Args:
        steps: of one update.
        layout: of the block.
        fields: names of the minibatch's parts, and how many numbers of each an update reads.
        outputs: scalars, of which ``sums`` gets the sums over the updates.
    """
    functions: list[str] = []
    main = Lines()
    names = [f"%field{index}" for index in range(len(fields))]
    arguments = ["i64 %count", "ptr %block", *(f"ptr {name}" for name in names), "ptr %sums"]
    main.label("entry")
    main.do("br label %update")
    main.label("update")
    main.do("%k = phi i64 [0, %entry], [%next, %update]")
    places: dict[str, str] = {}
    for name, (field, size) in zip(names, fields, strict=True):
        offset = main.add(f"mul nuw nsw i64 %k, {size}")
        places[f"field {field}"] = main.add(f"getelementptr float, ptr {name}, i64 {offset}")

    def place(value: Value) -> str:
        key = memory_of(value.base)
        if key not in places:
            offset = (
                layout.variables[value.base.detail[0]] if value.base.kind == "stored" else layout.values[id(value.base)]
            )
            places[key] = main.add(f"getelementptr float, ptr %block, i64 {offset}")
        return places[key]

    def place_of_variable(variable: int) -> str:
        key = f"variable {variable}"
        if key not in places:
            places[key] = main.add(f"getelementptr float, ptr %block, i64 {layout.variables[variable]}")
        return places[key]

    for number_, step in enumerate(steps):
        if isinstance(step, Loop):
            loop = LoopFunction(f"loop{number_}", step, layout)
            functions.append(loop.text)
            given = [
                place_of_variable(int(key.split()[1])) if key.startswith("variable") else place(value)
                for key, value in loop.parameters.items()
            ]
            main.do(f"call void @loop{number_}({', '.join(f'ptr {pointer}' for pointer in given)})")
        elif step.kind == "product":
            _call_product(main, step, place)
        else:
            functions.append(_join_function(f"join{number_}", step))
            given = [*map(place, step.arguments), place(step)]
            main.do(f"call void @join{number_}({', '.join(f'ptr {pointer}' for pointer in given)})")
    for index, output in enumerate(outputs):
        value = number(output.detail) if output.kind == "literal" else main.add(f"load float, ptr {place(output)}")
        total = main.add(f"getelementptr float, ptr %sums, i64 {index}")
        before = main.add(f"load float, ptr {total}")
        main.do(f"store float {main.add(f'fadd float {before}, {value}')}, ptr {total}")
    main.do("%next = add nuw nsw i64 %k, 1")
    main.do("%over = icmp eq i64 %next, %count")
    main.do("br i1 %over, label %end, label %update")
    main.label("end")
    main.do("ret void")
    body = "\n".join(main.lines)
    thirteen = ", ".join(["ptr"] * 13)
    numbers = sorted(
        {size for step in steps if isinstance(step, Value) for part in (step, *step.arguments) for size in part.shape}
    )
    constants = [
        *(f"@n{size} = private unnamed_addr constant i32 {size}" for size in numbers),
        *(f"@{letter} = private unnamed_addr constant i8 {ord(letter)}" for letter in "NT"),
        f"@one = private unnamed_addr constant float {number(1)}",
        f"@zero = private unnamed_addr constant float {ZERO}",
    ]
    return "\n\n".join(
        [
            "\n".join(constants),
            DECLARATIONS + f"\ndeclare void @{PRODUCT}({thirteen})",
            *functions,
            f"define void @{ENTRY}({', '.join(arguments)}) nounwind {{\n{body}\n}}",
        ]
    )


def memory_of(base: Value) -> str:
    """Return a name for the memory of a value: one variable has one, whatever its version."""
    if base.kind == "stored":
        return f"variable {base.detail[0]}"
    return f"field {base.detail}" if base.kind == "field" else f"value {id(base)}"


def _call_product(main: Lines, step: Value, place) -> None:
    """Call BLAS: what lies in rows here lies in columns there, so it computes the transposed product."""
    one, other = step.arguments
    one_transposed, other_transposed = step.detail
    rows, columns = step.shape
    inner = one.shape[0] if one_transposed else one.shape[1]
    arguments = [
        f"@{'NT'[other_transposed]}",
        f"@{'NT'[one_transposed]}",
        *(f"@n{size}" for size in (columns, rows, inner)),
        "@one",
        place(other),
        f"@n{other.shape[1]}",
        place(one),
        f"@n{one.shape[1]}",
        "@zero",
        place(step),
        f"@n{columns}",
    ]
    main.do(f"call void @{PRODUCT}({', '.join(f'ptr {argument}' for argument in arguments)})")


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
