"""The house: rooms stand on rooms below them, no file goes in circles, files and classes stay readable.

Read off the imports in the source; docs/architecture.md tells the same in words.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the ground up. A file may import from its own room and from lower ones.
FLOORS = [
    {"errors", "_tflearn", "quiet", "progress", "readers", "answers"},
    {"spelling", "foreign_names", "validation", "toml_file"},
    {"options"},
    {"family"},
    {"gradients", "experience", "storage", "native"},
    {"networks"},
    {"acting"},
    {"config"},
    {"updates", "exports"},
    {"agents"},
    {"distributed"},
    {"laboratory", "runs"},
    {"studies"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
# Besides errors.
NEIGHBOURS = {
    "experience": {"validation"},
    "storage": set(),
    "native": set(),
    "gradients": {"_tflearn"},
}  # besides errors
WITHOUT_TENSORFLOW = (
    *(
        "ddpg.experience",
        "ddpg.storage",
        "ddpg.config",
        "ddpg.family",
        "ddpg.options",
        "ddpg.toml_file",
        "ddpg.validation",
        "ddpg.spelling",
        "ddpg.foreign_names",
        "ddpg.errors",
        "ddpg_envs",
    ),
    *("ddpg.exports.loaded", "ddpg.exports.policy_file", "ddpg.exports.place", "ddpg.exports.widths"),
    *("ddpg.studies", "ddpg.runs.recipes", "ddpg.native.cores"),
    *(
        f"ddpg.distributed.{name}"
        for name in ("choosing", "cluster", "messages", "patience", "worker", "pool", "processes", "ray_workers")
    ),
    *(
        "ddpg.acting.noise",
        "ddpg.acting.parameter_noise",
        "ddpg.acting.schedules",
        "ddpg.acting.program",
        "ddpg.acting.exploration",
    ),
)


def sources():
    """Return ``{module: path}`` of the package and its environments."""
    found = {}
    for package, folder in (("ddpg", ROOT / "ddpg"), ("ddpg_envs", ROOT / "envs")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


SOURCES = sources()


@functools.cache
def tree(module):
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


@functools.cache
def imports(module, typing=True):
    """Return every module that ``module`` imports, inside functions too, ours by their full names.

    ``typing``: those that only type checkers import, too.
    """
    found, skipped = set(), set()
    for node in ast.walk(tree(module)):
        if not typing and is_for_type_checkers(node):
            skipped |= {id(child) for statement in node.body for child in ast.walk(statement)}
    for node in ast.walk(tree(module)):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level < 2, f"{module} imports from beyond its folder"
            home = module if SOURCES[module].name == "__init__.py" else module.rpartition(".")[0]
            folder = f"{home}." if node.level else ""
            for alias in node.names:
                whole = f"{folder}{node.module}.{alias.name}"
                found.add(whole if whole in SOURCES else f"{folder}{node.module}")
    return found


def own(module, typing=True):
    return {name for name in imports(module, typing) if name in SOURCES and name not in ("ddpg", "ddpg_envs")}


def room(module):
    return module.split(".")[1]


def floor(module):
    return next(height for height, rooms in enumerate(FLOORS) if room(module) in rooms)


def reached(module, typing=True):
    """Return ``module`` and all of ours that importing it imports."""
    waiting, seen = [module], set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(own(name, typing))
    return seen


@pytest.mark.parametrize("module", [name for name in SOURCES if name.startswith("ddpg.")])
def test_imports_run_downward(module):
    for name in own(module):
        assert name.startswith("ddpg."), f"{module} imports {name}"
        if room(name) == room(module):
            continue
        assert floor(name) < floor(module), f"{module} imports {name}, which is not below it"
        allowed = NEIGHBOURS.get(room(module))
        assert allowed is None or room(name) in {"errors"} | allowed, f"{module} imports {name}"


@pytest.mark.parametrize("module", [name for name in SOURCES if name.startswith("ddpg_envs")])
def test_environments_stand_alone(module):
    assert {name for name in own(module) if name.startswith("ddpg.")} <= {"ddpg.errors"}


def test_no_file_goes_in_circles():
    for module in SOURCES:
        for name in own(module):
            assert module not in reached(name), f"{module} imports {name}, which comes back to it"


def test_what_workers_need_is_free_of_tensorflow():
    modules = [m for m in SOURCES if m.startswith(WITHOUT_TENSORFLOW)]
    assert len(modules) > 20
    for module in modules:
        for name in reached(module, typing=False):
            heavy = {i for i in imports(name, typing=False) if i.split(".")[0] in ("tensorflow", "tflearn")}
            assert not heavy, f"{module} imports {name}, which imports {heavy}"


@pytest.mark.parametrize("module", list(SOURCES))
def test_files_and_classes_are_short(module):
    assert len(SOURCES[module].read_text(encoding="utf-8").splitlines()) <= 300, module
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno - node.lineno + 1 <= 200, f"{module}.{node.name}"


def test_every_folder_says_what_its_room_is_for():
    for folder in (ROOT / "ddpg").iterdir():
        if folder.is_dir() and any(folder.glob("*.py")):
            (line,) = (folder / "__init__.py").read_text(encoding="utf-8").splitlines()
            assert line.startswith('"""')
            assert line.endswith('."""')


def test_pictures_are_saved_aside():
    """By ``storage/atomic.py``: whoever looks never sees half of one."""
    saving = {
        module
        for module in SOURCES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "savefig"
    }
    assert saving == {"ddpg.storage.atomic"}


def test_the_map_of_the_rooms_is_complete():
    """Every module is a word of it, and every word there is a module or a room."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.search(r"^## Rooms and floors\n+```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert drawn
    words = set(re.findall(r"\w+", drawn[1]))
    files = [path.relative_to(ROOT / "ddpg") for path in (ROOT / "ddpg").rglob("*.py")]
    modules = {path.stem for path in files} - {"__init__", "__main__"}
    rooms = {path.parts[0] for path in files if len(path.parts) > 1}
    assert modules - words == set(), "not on the map of docs/architecture.md"
    assert words - modules - rooms == set(), "on the map of docs/architecture.md, and nowhere else"
