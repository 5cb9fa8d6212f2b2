"""Which package, or which extra of ours, brings an environment that could not be made."""

import re

# What stands in the message of a missing package: how it is installed.
_EXTRAS = {
    "gymnasium_robotics": "robotics",
    "gymnasium-robotics": "robotics",
    "mujoco": "mujoco",
    "pygame": "video",
    "imageio": "video",
    "envpool": "envpool",
}
_PACKAGES = {"box2d": "'gymnasium[box2d]'", "ale_py": "ale-py", "ale-py": "ale-py", "cv2": "opencv-python-headless"}

# An id as it is where its module was not imported, or as older packages had it: the id to write.
_MODULES = (
    (r"(?:Fetch|Hand|Adroit|AntMaze|PointMaze|FrankaKitchen)\w*-v\d+", "gymnasium_robotics:{0}", "gymnasium_robotics"),
    (r"ALE/\w+-v\d+", "ale_py:{0}", "ale-py"),
    (r"(\w+?)(?:NoFrameskip|Deterministic)-v\d+", "ale_py:ALE/{1}-v5", "ale-py"),
)


def how_to_install(missing: str) -> str:
    """Return how to install what a message says is missing: the extra that has it, or a package of pip's."""
    missing = missing.lower()
    for word, extra in _EXTRAS.items():
        if word in missing:
            return f"install the extra {extra!r}: pip install 'ddpg-paths[{extra}]', in a checkout '.[{extra}]'"
    for word, package in _PACKAGES.items():
        if word in missing:
            return f"install it: pip install {package}"
    return "install the package that has it, or write the module's name right"


def elsewhere(name: str) -> str:
    """Return how an environment is named that another package brings, or the empty string."""
    for pattern, written, package in _MODULES:
        if found := re.fullmatch(pattern, name):
            how = how_to_install(package)
            return f"; write {written.format(found[0], *found.groups())!r} and, unless it is there, {how}"
    return ""
