"""Measure the time of an action in C, and its flash and stack on a Cortex-M4: ``python -m benchmarks.c_policy``.

A time is the smallest of 60 measurements of 2,000 actions each, for networks with random weights. Missing compilers are
left out.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import gymnasium as gym

from ddpg import DDPG, DDPGConfig

NETWORKS = {"Pendulum, 64-64": (3, 1, (64, 64)), "HalfCheetah, 256-256": (17, 6, (256, 256))}
COMPILERS = ("gcc -O2", "gcc -O3", "gcc -O3 -march=native", "clang -O2", "clang -O3 -march=native")
CORTEX = "arm-none-eabi-gcc -Os -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -fstack-usage -c policy.c"
MAIN = """\
#include <stdio.h>
#include <time.h>
#include "policy.h"
int main(void)
{
    float observation[POLICY_OBSERVATION_SIZE], action[POLICY_ACTION_SIZE];
    double best = 1e9;
    volatile float used = 0;
    int k, r;
    for (k = 0; k < POLICY_OBSERVATION_SIZE; k++)
        observation[k] = 0.1f * (float)k;
    for (r = 0; r < 60; r++) {
        struct timespec begin, end;
        double each;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (k = 0; k < 2000; k++) {
            observation[0] = (float)k * 1e-3f;
            policy_act(observation, action);
            used += action[0];
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        each = ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / 2000;
        best = each < best ? each : best;
    }
    printf("%.0f\\n", best);
    return 0;
}
"""


def measure(folder: Path) -> list[str]:
    """Return a line for each installed compiler, about the policy in ``folder``."""
    (folder / "main.c").write_text(MAIN)
    lines = []
    for compiler in COMPILERS:
        if shutil.which(compiler.split()[0]):
            subprocess.run([*compiler.split(), "main.c", "policy.c", "-lm", "-o", "timed"], cwd=folder, check=True)
            done = subprocess.run([folder / "timed"], check=True, capture_output=True, text=True)
            lines.append(f"{compiler}: {done.stdout.strip()} ns")
    if shutil.which("arm-none-eabi-gcc"):
        subprocess.run(CORTEX.split(), cwd=folder, check=True)
        size = subprocess.run(
            ["arm-none-eabi-size", "policy.o"], cwd=folder, check=True, capture_output=True, text=True
        )
        stack = sum(int(line.split("\t")[1]) for line in (folder / "policy.su").read_text().splitlines())
        lines.append(f"Cortex-M4 -Os: {size.stdout.splitlines()[1].split()[0]} bytes of flash, {stack} of stack")
    return lines


if __name__ == "__main__":
    for name, (observations, actions, hidden) in NETWORKS.items():
        spaces = gym.spaces.Box(-8, 8, (observations,)), gym.spaces.Box(-2, 2, (actions,))
        agent = DDPG(spaces, DDPGConfig(hidden=hidden, jit=False), seed=0)
        for quantize in (None, "int8"):
            with tempfile.TemporaryDirectory() as folder:
                path = agent.export(Path(folder) / "policy", "c", quantize)
                for line in measure(path):
                    print(f"{name}, {quantize or 'float32'}, {line}", flush=True)
