"""The package's structure: subpackages import only from lower ones, imports have no cycles, and names are unique.

The imports are read from the source; docs/architecture.md describes the same rules.
"""

import ast
import collections
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The levels, from the lowest. A file imports from its own subpackage and from lower levels.
FLOORS = [
    {"errors", "_tflearn", "progress", "quiet"},
    {"gradients", "interaction", "checkpoints", "compiler"},
    {"replay"},
    {"policies"},
    {"config"},
    {"networks"},
    {"algorithms", "exports"},
    {"learners"},
    {"agents"},
    {"workers"},
    {"laboratory", "runs"},
    {"studies"},
    {"cli"},
    {"__main__"},
]
# What a subpackage may import besides ``errors``; those not listed may import all lower levels.
ONLY = {
    "replay": {"interaction"},
    "interaction": set(),
    "checkpoints": set(),
    "compiler": set(),
    "gradients": {"_tflearn"},
}
WITHOUT_TENSORFLOW = (
    "ddpg.replay",
    "ddpg.interaction",
    "ddpg.checkpoints",
    "ddpg.config",
    "ddpg.studies",
    "ddpg.errors",
    "ddpg.policies.noise",
    "ddpg.policies.schedules",
    "ddpg.policies.numpy_program",
    "ddpg.policies.exploration",
    "ddpg.policies.standalone",
    "ddpg.exports.numpy_policy",
    "ddpg.exports.policy_file",
    "ddpg.exports.export_dir",
    "ddpg.workers.worker_options",
    "ddpg.workers.worker",
    "ddpg.workers.pool",
    "ddpg.workers.processes",
    "ddpg.workers.ray_workers",
    "ddpg.compiler.thread_pool",
    "ddpg_envs",
)
# The same idea in several subpackages.
SHARED_FILE_NAMES = {"__init__.py", "base.py", "ddpg.py", "dqn.py"}

# Tests of what several modules of a subpackage do together, and named after that.
BEHAVIOURS = {
    "agents": {
        *(
            "abandoned_episodes",
            "own_code",
            "action_mask",
            "clipped_actions",
            "damaged_agents",
            "dropped_transitions",
            "hindsight",
        ),
        *("images", "learning_rates", "lifetime", "memory_options", "options_off", "options_together", "threads"),
        *("overflowing_actions", "parameterised", "processes", "schedules", "seeds_and_resume"),
    },
    "algorithms": {
        *("averaged_actor", "batch_norm", "distributional", "options", "ordered", "own_paths", "sample_weights"),
        *("terms", "variant"),
    },
    "checkpoints": {"damage", "earlier_version"},
    "cli": {"hostile_flags", "json_output", "own_code"},
    "compiler": {"bfloat16", "convolution", "denormals", "flags", "one_core", "other_processors"},
    "exports": {"act", "every_policy"},
    "gradients": {"golden"},
    "learners": {"llvm_failures"},
    "networks": {"affine_projection", "networks", "weight_projection"},
    "policies": {"single_threaded_blas"},
    "replay": {"interrupted"},
    "runs": {
        *("budget", "checked_first", "collectors", "graceful_stop", "hostile_envs", "learning", "offline", "pools"),
        "resume",
        "resume_changes",
    },
    "studies": {"slurm_cluster"},
}
# Folders of tests that belong to no subpackage.
OTHER_TESTS = {"benchmarks", "envs", "golden", "tools"}


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
    """Return every module that ``module`` imports, also inside functions; ours by their full names.

    ``typing``: include imports for type checkers only.
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
            assert node.level < 2, f"{module} imports from outside its folder"
            home = module if SOURCES[module].name == "__init__.py" else module.rpartition(".")[0]
            folder = f"{home}." if node.level else ""
            for alias in node.names:
                full_name = f"{folder}{node.module}.{alias.name}"
                found.add(full_name if full_name in SOURCES else f"{folder}{node.module}")
    return found


def own(module, typing=True):
    return {name for name in imports(module, typing) if name in SOURCES and name not in ("ddpg", "ddpg_envs")}


def room(module):
    return module.split(".")[1]


def floor(module):
    return next(height for height, rooms in enumerate(FLOORS) if room(module) in rooms)


def reached(module, typing=True):
    """Return ``module`` and all of our modules that importing it imports."""
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
        allowed = ONLY.get(room(module))
        assert allowed is None or room(name) in {"errors"} | allowed, f"{module} imports {name}"


@pytest.mark.parametrize("module", [name for name in SOURCES if name.startswith("ddpg_envs")])
def test_environments_stand_alone(module):
    assert {name for name in own(module) if name.startswith("ddpg.")} <= {"ddpg.errors"}


def test_imports_have_no_cycles():
    for module in SOURCES:
        for name in own(module):
            assert module not in reached(name), f"{module} imports {name}, which imports it in turn"


def test_modules_of_workers_do_not_import_tensorflow():
    modules = [module for module in SOURCES if module.startswith(WITHOUT_TENSORFLOW)]
    for prefix in WITHOUT_TENSORFLOW:
        assert any(module.startswith(prefix) for module in modules), prefix
    for module in modules:
        for name in reached(module, typing=False):
            heavy = {i for i in imports(name, typing=False) if i.split(".")[0] in ("tensorflow", "tflearn")}
            assert not heavy, f"{module} imports {name}, which imports {heavy}"


def test_top_level_modules_are_those_of_the_lowest_level():
    """All other modules are in subpackages."""
    files = {path.name for path in (ROOT / "ddpg").glob("*.py")}
    assert files == {"__init__.py", "__main__.py", *(f"{name}.py" for name in FLOORS[0])}


def test_file_names_are_unique():
    places = collections.defaultdict(list)
    for path in (ROOT / "ddpg").rglob("*.py"):
        places[path.name].append(path)
    assert {name for name, paths in places.items() if len(paths) > 1} <= SHARED_FILE_NAMES


def test_class_names_are_unique():
    places = collections.defaultdict(set)
    for module in SOURCES:
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_tests_are_in_their_subpackages_folder_and_named_after_a_module_or_a_behaviour():
    """A module's tests begin with its name, so that ``tests/runs/test_curves*.py`` tests ``curves.py``."""
    rooms = {path.parent.name for path in (ROOT / "ddpg").glob("*/__init__.py")}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*") if path.suffix != ".pyc"}
    assert folders - OTHER_TESTS - {"__pycache__"} == rooms
    for room in rooms:
        modules = {path.stem for path in (ROOT / "ddpg" / room).glob("*.py")}
        tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / room).glob("test_*.py")}
        behaviours = {name for name in tests if not any(f"{name}_".startswith(f"{module}_") for module in modules)}
        assert behaviours == BEHAVIOURS.get(room, set()), room


def test_every_subpackage_has_a_one_line_description():
    for folder in (ROOT / "ddpg").iterdir():
        if folder.is_dir() and any(folder.glob("*.py")):
            (line,) = (folder / "__init__.py").read_text(encoding="utf-8").splitlines()
            assert line.startswith('"""')
            assert line.endswith('."""')


def test_figures_are_saved_atomically():
    """By ``checkpoints/atomic_write.py``, so that no reader sees an incomplete file."""
    saving = {
        module
        for module in SOURCES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "savefig"
    }
    assert saving == {"ddpg.checkpoints.atomic_write"}


def opens_text_without_encoding(call):
    """Return whether a call opens a text file, or a program's output, in the machine's own encoding."""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    given = {keyword.arg for keyword in call.keywords}
    if "encoding" in given or ast.unparse(call.func) in ("os.open", "atomic_write.write_text"):
        return False
    if name in ("read_text", "write_text"):
        return isinstance(call.func, ast.Attribute) and len(call.args) <= (name == "write_text")
    if name in ("open", "fdopen"):
        texts = [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        return not any(re.fullmatch(r"[rwaxb+]*b[rwaxb+]*", text) for text in texts)
    return name in ("run", "Popen", "check_output") and bool(given & {"text", "universal_newlines"})


@pytest.mark.parametrize(
    "text", ["open(a)", "a.open('w')", "os.fdopen(3, mode='r')", "a.read_text()", "run(a, text=True)"]
)
def test_text_files_without_an_encoding_are_found(text):
    assert opens_text_without_encoding(ast.parse(text).body[0].value)


def test_text_files_name_their_encoding():
    """It is not UTF-8 by default on Windows."""
    found = [
        f"{module}:{call.lineno}"
        for module in SOURCES
        for call in ast.walk(tree(module))
        if isinstance(call, ast.Call) and opens_text_without_encoding(call)
    ]
    assert found == []


def page():
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_subpackage_is_on_the_page():
    rooms = {path.parent.name for path in (ROOT / "ddpg").glob("*/__init__.py")}
    table = re.findall(r"^\| (`.*?) \|", page(), re.MULTILINE)
    assert {name for row in table for name in re.findall(r"`(\w+)`", row)} == rooms


def test_every_subpackage_is_in_the_diagram():
    source = (ROOT / "docs" / "draw_architecture.py").read_text(encoding="utf-8")
    (levels,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LEVELS"
    )
    rooms = {path.parent.name for path in (ROOT / "ddpg").glob("*/__init__.py")}
    assert {name for level in ast.literal_eval(levels) for name in level} == rooms


def test_every_file_on_the_page_exists():
    """In the named subpackage, or in any if none is named."""
    files = {str(path.relative_to(ROOT / "ddpg")) for path in (ROOT / "ddpg").rglob("*.py")}
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", page()))
    assert len(named) > 20
    for name in named - {"tests/test_architecture.py", "ddpg/__init__.py"}:
        assert name in files or ("/" not in name and any(file.endswith(f"/{name}") for file in files)), name
