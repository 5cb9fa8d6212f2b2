"""README and pages are right: their code runs, and every link, test, function and file that they name exists."""

import ast
import contextlib
import dataclasses
import importlib
import json
import re
import shlex
import shutil
import sys
import urllib.parse
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import module_at
from few_frames import few_frames

import ddpg
import ddpg.cli.main
from ddpg.algorithms.registry import ALGORITHMS
from ddpg.config.algorithm_options import CONFIGS, CriticOptions, TD3Options

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = sorted(DOCS.rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *SITE]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# Blocks below `<!-- not run: reason -->` are skipped. Their number on each page is listed here, so that none is added
# unnoticed.
NOT_RUN: dict[str, int] = {
    "docs/control_suite.md": 2,
    "docs/environments.md": 1,
    "docs/export.md": 3,
    "docs/how_to/environment.md": 1,
    "docs/how_to/images.md": 2,
    "docs/how_to/masks.md": 1,
    "docs/how_to/trackers.md": 2,
    "docs/learning.md": 1,
    "docs/learning/environments.md": 2,
    "docs/offline.md": 1,
    "docs/recipes/td3_bc.md": 1,
}

# Beginnings of shell lines that are tested elsewhere; the scripts and folders that they name must exist.
TRIED_ELSEWHERE = {
    "git clone": "there is no forge to clone from",
    "python3 -m venv": ".ci/run makes an environment with these very commands",
    ".venv/bin/": ".ci/run, or for too long",
    "robot-venv/bin/": "tests/test_journeys.py",
    "pip install ": ".ci/run and .ci/distributions install it",
    "python benchmarks/": "takes minutes to hours",
    "python -m benchmarks.": "takes minutes to hours; tests/benchmarks tries what it is made of",
    "docker ": "needs a daemon",
    "sphinx-build ": ".ci/run builds the pages",
}

# These take long, need a screen, or have tests of their own. Here it is enough that a command line is valid and the
# work would begin.
LONG = (
    "ddpg.laboratory.compare.compare_paths",
    "ddpg.laboratory.flow.trace_update",
    "ddpg.runs.plotting.plot_curves",
    "ddpg.runs.plotting.plot_diagnostics",
    "ddpg.runs.saved_policy.RunPolicy.check_critic",
    "ddpg.runs.saved_policy.SavedPolicy.evaluate",
    "ddpg.runs.saved_policy.SavedPolicy.record",
    "ddpg.runs.saved_policy.SavedPolicy.watch",
    "ddpg.runs.training.resume",
    "ddpg.runs.training.train",
    "ddpg.studies.scheduler.run_study",
    "ddpg.studies.study_folder.read_cells",
    "ddpg.studies.tuning.run_tuning",
)
SHORT = 33  # learning steps of a block, besides the random ones: one call of updates


class Block(NamedTuple):
    """A fenced block: its page, first line, language and text, and why it is not run, if so."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None


class AboutToBegin(Exception):
    """Raised instead of doing the work of a command line."""


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    found, number = [], 0
    while number < len(lines):
        fence = re.match(r"(`{3,}|~{3,})(.*)$", lines[number])
        if fence:
            end = next(k for k in range(number + 1, len(lines)) if lines[k].rstrip() == fence[1])
            above = re.fullmatch(r"<!-- not run: (.+) -->", lines[number - 1]) if number else None
            text = "\n".join(lines[number + 1 : end])
            found.append(Block(page, number + 1, fence[2].strip(), text, above and above[1]))
            number = end
        number += 1
    return found


ALL = {name_of(page): blocks(page) for page in PAGES}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with runs/Pendulum-v1/1 and 2, which pages assume to exist."""
    folder = tmp_path_factory.mktemp("trained")
    few = {"learning_starts": 50, "updates_per_step": 0.1, "updates_per_call": 32, "jit": False}
    config = ddpg.DDPGConfig(hidden=(8, 8), batch_size=8, optimizer="sgd", **few)
    options = {"total_timesteps": 800, "evaluation_interval": 400, "evaluation_episodes": 1, "progress_bar": False}
    run = ddpg.train("Pendulum-v1", config, seed=0, root=folder / "runs", **options)
    shutil.copytree(run, run.with_name("2"))
    return folder


@pytest.fixture
def briefly(monkeypatch):
    """Skip what only takes time: most steps, frames and boundings, and compilation. Other tests cover them."""
    from ddpg.agents.off_policy import OffPolicyAgent
    from ddpg.laboratory import compare, finite_differences, fixture, flow
    from ddpg.learners import updater
    from ddpg.runs import recorder

    learn = OffPolicyAgent.learn

    def brief(agent, total_timesteps, *options, **named):
        return learn(agent, min(total_timesteps, agent.config.learning_starts + SHORT), *options, **named)

    monkeypatch.setattr(OffPolicyAgent, "learn", brief)
    few_frames(monkeypatch)
    monkeypatch.setattr(updater.Updater, "_native", lambda _: None)
    monkeypatch.setattr(updater, "XLALearner", updater.UncompiledLearner)
    monkeypatch.setattr(compare, "_compiled", lambda *_: None)
    monkeypatch.setattr(compare, "BOUNDINGS", ("inverting",))
    monkeypatch.setattr(finite_differences, "COORDINATES", 20)
    monkeypatch.setattr(recorder, "CHOICE_EPISODES", 1)
    for module in (fixture, flow):
        monkeypatch.setattr(module, "UPDATES", 1)


@pytest.fixture
def forgotten(tmp_path):
    """Afterwards, forget the modules in ``tmp_path``, its place on the path, and the algorithms that they register."""
    path, registered = list(sys.path), [(table, {*table}) for table in (ALGORITHMS, CONFIGS)]
    yield
    sys.path[:] = path
    for table, names in registered:
        for name in {*table} - names:
            del table[name]
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def begin(*arguments, **options):
    raise AboutToBegin


def run_command(line, where):
    arguments = shlex.split(line, comments=True)[1:]
    with pytest.MonkeyPatch.context() as patch:
        for function in LONG:
            patch.setattr(function, begin)
        with contextlib.suppress(AboutToBegin):
            assert ddpg.cli.main.main(arguments) == 0, f"{where}: {line}"


def run_shell(block, where):
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("ddpg "):
            run_command(line, where)
        elif line and not line.startswith("#"):
            assert line.startswith(tuple(TRIED_ELSEWHERE)), f"{where}: {line!r} is tested nowhere, see TRIED_ELSEWHERE"
            for path in re.findall(r"(?:benchmarks|tests|notebooks|docs)/[\w/.-]+\.\w+", line.partition("#")[0]):
                assert (ROOT / path).exists(), f"{where} names {path}"


# Pages whose code trains or compiles for seconds; what they use is tested elsewhere. README trains, saves and loads.
TRAINING = {
    f"docs/{name}.md"
    for name in (
        *("export", "offline", "options/remember", "scaling", "start", "variants", "watch"),
        *(f"how_to/{name}" for name in ("bounding", "diagnose", "environment", "from_sb3", "loop", "networks", "path")),
        *(f"how_to/{name}" for name in ("pictures", "resume", "trackers", "vectors")),
    )
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINING)) for name, found in ALL.items() if found]
)
def test_code_runs(name, trained, briefly, forgotten, tmp_path, monkeypatch, capsys):
    """The Python of a page from top to bottom in one namespace, in a directory with two finished runs."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "benchmarks").mkdir()
    for studies in ("studies", "learning", "zoo"):
        (tmp_path / "benchmarks" / studies).symlink_to(ROOT / "benchmarks" / studies)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    namespace = {"__name__": "__main__"}
    for block in ALL[name]:
        where = f"{name}:{block.line}"
        if block.not_run:
            continue
        file = re.match(r"# (\w+\.(?:toml|py))\n", block.text)
        if file:  # later blocks use it
            Path(file[1]).write_text(block.text, encoding="utf-8")
        if block.language == "python":
            # Compiled with the page's line numbers, for tracebacks.
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), namespace)
        elif block.language == "sh":
            run_shell(block, where)
        else:
            known = block.language in ("text", "math", "toml") or block.language.startswith("{")
            assert known, f"{where}: {block.language!r}"


def test_blocks_that_are_not_run_are_listed():
    counts = {name: sum(block.not_run is not None for block in found) for name, found in ALL.items()}
    assert {name: count for name, count in counts.items() if count} == NOT_RUN


def anchors(page):
    """Return the anchors of a page's headings, as forges and MyST make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_inside_resolve(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), f"{name_of(page)} links to {link}: {sorted(anchors(target))}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_tests_and_functions_exist(page):
    text = page.read_text(encoding="utf-8")
    for path, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / path).exists(), path
        functions = {node.name for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)}
        assert not test or test in functions, f"{name_of(page)} names {path}::{test}"
    for dotted in re.findall(r"\{(?:func|meth|class)\}`([\w.]+)`", text):
        assert thing(dotted) is not None, dotted


def tree(path):
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def thing(dotted):
    """Return the object with a dotted name."""
    parts = dotted.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted)


def test_every_answer_of_the_faq_names_a_function_and_a_test():
    _, *answers = (DOCS / "faq.md").read_text(encoding="utf-8").split("\n## ")
    assert len(answers) > 10
    for answer in answers:
        assert re.search(r"\{(func|meth|class)\}`", answer), answer
        assert re.search(r"`tests/[\w/]+\.py::\w+`", answer), answer


def test_every_name_of_the_package_is_in_the_reference():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\.\. auto\w+:: ddpg\.(\w+)$", text, flags=re.MULTILINE))
    assert documented == set(ddpg.__all__) - {"__version__"}


def options_on(page):
    """Return the options that a page's line ``Options:`` lists."""
    line = re.search(r"^Options: (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.findall(r"`(\w+)`", line[1]) if line else []


# In addition to the shared ones, options of the configurations that extend plain DDPG.
WITH_A_PAGE = {
    *(field.name for kind in (TD3Options, CriticOptions) for field in dataclasses.fields(kind)),
    *("n_steps", "prioritised", "normalize_observations", "normalize_rewards", "pre_activation_penalty"),
    *("max_gradient_norm", "block", "output_init", "parameter_noise", "learning_rate_schedule", "noise_schedule"),
    *("updates_per_step", "gamma", "target", "hindsight", "adam_beta1", "weight_decay", "norm", "bc_alpha"),
    *("actor_average", "weight_projection", "affine_projection", "noise", "precision", "bc_only", "bc_final"),
    *("bc_steps", "dataset_share", "actor_network", "critic_network", "random_shift", "shared_encoder"),
}


def test_every_added_option_has_a_page():
    """With what, when, source, deviation, and an equation."""
    pages = sorted((DOCS / "options").glob("*.md"))
    listed_options = [option for page in pages for option in options_on(page)]
    assert len(listed_options) == len({*listed_options}), "an option must be on one page only"
    assert {*listed_options} >= WITH_A_PAGE
    assert {*listed_options} <= {field.name for kind in CONFIGS.values() for field in dataclasses.fields(kind)}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for part in ("**What.** ", "**When.** ", "**Source.** ", "**Deviation.** "):
            assert text.count(f"\n{part}") == 1, f"{name_of(page)} has no {part}"
        assert re.search(r"^```(text|math|python)$", text, flags=re.MULTILINE), f"{name_of(page)} has no equation"


def test_every_recipes_page_has_its_options_and_the_command_that_replicates_it():
    from ddpg.config.presets import RECIPES, read_recipe

    assert {page.stem for page in (DOCS / "recipes").glob("*.md")} == {*RECIPES}
    for recipe in RECIPES:
        text = (DOCS / "recipes" / f"{recipe}.md").read_text(encoding="utf-8")
        assert re.search(rf"^ddpg train \S+ --recipe {recipe} ", text, flags=re.MULTILINE), recipe
        listed_options = {*re.findall(r"`(\w+)`", text), *re.findall(r"\[(\w+)\]\(\.\./options", text)}
        assert {*read_recipe(recipe)} <= listed_options, f"{recipe}: { ({*read_recipe(recipe)} - listed_options) }"


def test_every_page_is_in_the_contents():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {
        line
        for contents in re.findall(r"```\{toctree\}\n(.*?)```", index, flags=re.DOTALL)
        for line in contents.splitlines()
        if line and not line.startswith(":")
    }
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in SITE}
    assert listed | {"index"} == pages | {f"notebooks/{notebook.stem}" for notebook in NOTEBOOKS}


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=name_of)
def test_the_last_line_links_to_the_next_page(page):
    """One link, to another page that exists; a notebook's is in its last cell."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "".join(json.loads(text)["cells"][-1]["source"])
    found = re.fullmatch(r"Next: \[[^]]+\]\(([^)#]+)(#[\w-]+)?\)\.", text.rstrip().splitlines()[-1])
    assert found, f"{name_of(page)} does not end with a line 'Next: [page](link).'"
    target = (page.parent / found[1]).resolve()
    assert target in {*PAGES, *NOTEBOOKS} - {page}


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_results_on_the_first_screen_are_those_of_the_tables(name):
    """Each number with an interval, return and time is in a table that is written from the committed results."""
    text = (ROOT / name).read_text(encoding="utf-8")
    shown = text.partition("<!-- results: begin -->")[2].partition("<!-- results: end -->")[0]
    numbers = r"[\d,.]+ \([\d,.]+ to [\d,.]+\)|[\d.]+(?= minutes)|\d+(?= by )"
    quoted = re.findall(numbers, re.sub(r"\s+", " ", shown))
    tables = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("performance.md", "learning.md"))
    assert len(quoted) >= 10
    for number in quoted:
        assert f"| {number} |" in tables or f"| {number} (" in tables, number


def test_the_first_screens_have_the_animation_the_commands_and_the_ways_to_install():
    readme, index = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/index.md"))
    assert (DOCS / "front.gif").stat().st_size <= 3_000_000
    for text in (readme, index):
        beginning = text.partition("\n## ")[0]
        assert "front.gif" in beginning
        assert ".venv/bin/pip install . && .venv/bin/ddpg train Pendulum-v1" in beginning
        assert re.search(r"\[`plus`\]\((docs/)?recipes/plus\.md\)", beginning)
        assert "git+URL" in text
    assert "--recipe" in readme
    assert "ddpg study" in readme


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("--allow-import module", True),
        ("ddpg train ENV --dataset FILE", True),
        ("-o FILE", True),
        ("td_target", False),
        ("Pendulum-v1", False),
        ("tests/networks/test_own_layers.py --verbose", False),  # a single span would be too wide for a phone
    ],
)
def test_code_with_flags_is_broken_only_between_words(code, kept):
    """Flags in the text of pages are not broken after their hyphens."""
    assert module_at(DOCS / "extensions" / "flags.py").has_flags(code) == kept
    css = (DOCS / "static" / "site.css").read_text(encoding="utf-8")
    assert "code.flags .pre {\n  white-space: nowrap;" in css
    assert '"flags"' in (DOCS / "conf.py").read_text(encoding="utf-8")
