"""Options as users of Stable-Baselines3, its zoo, CleanRL and Spinning Up write them, and the suggested names here."""

import dataclasses

import pytest
from refusals import lacking, refuses

from ddpg import DDPGConfig, DQNConfig, UsageError
from ddpg.cli.flags import refuse_unknown
from ddpg.cli.main import COMMANDS, main
from ddpg.cli.studies import Tune
from ddpg.cli.train import Train, _options_of_all_algorithms
from ddpg.config import name_hints
from ddpg.runs.env_factory import how_to_install, other_package_hint

BOX, DISCRETE, RUN = "train Pendulum-v1 ", "train CartPole-v1 ", "evaluate runs/Pendulum-v1/1 "

# The arguments of ``ddpg``, and what the message must contain.
MISTAKES = [
    # Stable-Baselines3's arguments, as flags
    (BOX + "--timesteps 5000", "--total-timesteps"),
    (BOX + "--learning-rate 1e-3", "actor_learning_rate"),
    (BOX + "--lr 3e-4", "--actor-learning-rate"),
    (BOX + "--policy MlpPolicy", "--hidden"),
    (BOX + "--policy-kwargs net_arch=[64,64]", "--hidden"),
    (BOX + "--net-arch 64 64", "--hidden"),
    (BOX + "--train-freq 1", "--updates-per-step"),
    (BOX + "--gradient-steps 1", "--updates-per-step"),
    (BOX + "--action-noise normal", "--noise"),
    (BOX + "--noise NormalActionNoise", "'gaussian'"),
    (BOX + "--noise OrnsteinUhlenbeckActionNoise", "'ornstein_uhlenbeck'"),
    (BOX + "--activation nn.ReLU", "'relu'"),
    (BOX + "--activation-fn tanh", "--activation"),
    (BOX + "--optimizer torch.optim.Adam", "'adam'"),
    (BOX + "--tensorboard-log ./tb", "tensorboard --logdir"),
    (BOX + "--verbose 1", "leave it out"),
    (BOX + "--device cuda", "GPU"),
    (BOX + "--max-grad-norm 10", "--max-gradient-norm"),
    (BOX + "--eval-freq 1000", "--evaluation-interval"),
    (BOX + "--n-eval-episodes 5", "--evaluation-episodes"),
    (BOX + "--eval-env Pendulum-v1", "leave it out"),
    (BOX + "--log-interval 10", "metrics.csv"),
    (BOX + "--replay-buffer-class HerReplayBuffer", "--hindsight"),
    (BOX + "--optimize-memory-usage", "leave it out"),
    (BOX + "--buffer-size 1e6x", "buffer_size"),
    (BOX + "--ent-coef auto", "SAC"),
    (BOX + "--use-sde", "SAC"),
    (DISCRETE + "--exploration-fraction 0.1", "--exploration-steps"),
    (DISCRETE + "--exploration-initial-eps 1.0", "--exploration-initial"),
    (DISCRETE + "--exploration-final-eps 0.05", "--exploration-final"),
    (DISCRETE + "--policy CnnPolicy", "--network conv"),
    (DISCRETE + "--network cnn", "'conv'"),
    # The zoo's flags
    ("train --algo ddpg --env Pendulum-v1", "DDPG for a Box"),
    ("train --env Pendulum-v1", "ddpg train Pendulum-v1"),
    (BOX + "--n-timesteps 50000", "--total-timesteps"),
    (BOX + "-n 50000", "--total-timesteps"),
    (BOX + "--eval-episodes 10", "--evaluation-episodes"),
    (BOX + "--n-eval-envs 1", "leave it out"),
    (BOX + "--save-freq 1000", "--evaluation-interval"),
    (BOX + "--save-replay-buffer", "every checkpoint"),
    (BOX + "-f logs", "--root"),
    (BOX + "--log-folder logs", "--root"),
    (BOX + "-i logs/ddpg/Pendulum-v1_1/best_model.zip", "ddpg resume RUN"),
    (BOX + "--trained-agent model.zip", "ddpg resume RUN"),
    (BOX + "--vec-env subproc", "--vectorization"),
    (BOX + "--n-envs 2 --vectorization subproc", "'async'"),
    (BOX + "--hyperparams learning_rate:0.001", "--config"),
    (BOX + "-params learning_rate:0.001", "--config"),
    (BOX + "--conf-file hyper.yml", "--config"),
    (BOX + "--progress", "--progress-bar"),
    (BOX + "-P", "--progress-bar"),
    (BOX + "--no-progress", "--no-progress-bar"),
    (BOX + "--num-threads 2", "--threads"),
    (BOX + "--env-kwargs g:9.8", "'g=9.8'"),
    (BOX + "--env-kwargs g=9.8 max_episode_steps=5", "--env-kwargs max_episode_steps=5"),
    ("runs runs g=9.8", "know 'g'; all"),
    ("runs runs FlattenObservation", "know 'FlattenObservation'; all"),
    (BOX + "--time-limit 5", "know '--time-limit': use --env-kwargs max_episode_steps="),
    (RUN + "--time-limit 5", "know '--time-limit': with ddpg train use --env-kwargs max_episode_steps="),
    (BOX + "--no-xla", "know '--no-xla': use --no-jit"),
    (BOX + "--gym-packages gymnasium_robotics", "gymnasium_robotics:FetchReach-v4"),
    (BOX + "-tb logs", "tensorboard --logdir"),
    (BOX + "--uuid", "numbered"),
    (BOX + "-optimize", "ddpg tune"),
    (BOX + "--optimize-hyperparameters", "ddpg tune"),
    (BOX + "--noise-type normal", "--noise"),
    (BOX + "--noise-std 0.1", "--noise-scale"),
    (BOX + "--normalize", "--normalize-observations"),
    (BOX + "--env-wrapper FlattenObservation", "--wrap"),
    ("tune Pendulum-v1 --n-trials 10", "--trials"),
    ("tune Pendulum-v1 --n-jobs 2", "--jobs"),
    ("tune Pendulum-v1 --sampler tpe", "TPE"),
    ("tune Pendulum-v1 --pruner median", "--no-prune"),
    ("tune Pendulum-v1 --n-timesteps 1000", "--total-timesteps"),
    ("tune CartPole-v1 --recipe td3", "DQN"),
    ("enjoy --algo ddpg --env Pendulum-v1", "'watch'"),
    ("eval runs/Pendulum-v1/1", "'evaluate'"),
    ("learn Pendulum-v1", "'train'"),
    ("benchmark", "'study'"),
    ("optimize Pendulum-v1", "'tune'"),
    (RUN + "--n-eval-episodes 5", "--episodes"),
    (RUN + "--n-episodes 5", "--episodes"),
    (RUN + "--deterministic", "without exploration noise"),
    (RUN + "--load-best", "--checkpoint"),
    (RUN + "--no-render", "ddpg record"),
    ("record runs/Pendulum-v1/1 --n-timesteps 1000", "--episodes"),
    ("record runs/Pendulum-v1/1 --video-folder videos", "--output"),
    # CleanRL's
    (BOX + "--env-id Pendulum-v1", "ddpg train Pendulum-v1"),
    (BOX + "--track wandb --wandb-project-name x", "wandb"),
    (BOX + "--wandb-entity me", "--track wandb"),
    (BOX + "--wandb", "--track"),
    (BOX + "--track", "{wandb,mlflow,trackio"),
    (BOX + "--capture-video", "ddpg record RUN"),
    (BOX + "--save-model", "ddpg export RUN"),
    (BOX + "--upload-model", "ddpg export RUN"),
    (BOX + "--torch-deterministic", "two runs of one seed"),
    (BOX + "--cuda", "GPU"),
    (BOX + "--no-cuda", "GPU"),
    (BOX + "--exp-name first", "--root"),
    (BOX + "--num-envs 4", "--n-envs"),
    (BOX + "--exploration-noise 0.1", "--noise-scale"),
    (BOX + "--policy-frequency 2", "--policy-delay"),
    (BOX + "--policy-noise 0.2", "--target-policy-noise"),
    (BOX + "--noise-clip 0.5", "--target-noise-clip"),
    (BOX + "--policy-lr 3e-4", "--actor-learning-rate"),
    (BOX + "--q-lr 1e-3", "--critic-learning-rate"),
    (DISCRETE + "--start-e 1", "--exploration-initial"),
    (DISCRETE + "--end-e 0.05", "--exploration-final"),
    (DISCRETE + "--target-network-frequency 500", "--target-update-interval"),
    (DISCRETE + "--train-frequency 10", "--updates-per-step"),
    ("td3 --env-id Pendulum-v1", "'train'"),
    ("ddpg_continuous_action.py", "'train'"),
    # Spinning Up's, and others
    (BOX + "--hid 64", "--hidden"),
    (BOX + "--hidden-sizes 64 64", "--hidden"),
    (BOX + "--hidden 64,64", "--hidden 64 64"),
    (BOX + "--hidden [64,64]", "--hidden 64 64"),
    (BOX + "--polyak 0.995", "1 - polyak"),
    (BOX + "--start-steps 1000", "--learning-starts"),
    (BOX + "--update-after 1000", "--learning-starts"),
    (BOX + "--replay-size 10000", "--buffer-size"),
    (BOX + "--act-noise 0.1", "--noise-scale"),
    (BOX + "--epochs 10", "--total-timesteps"),
    (BOX + "--discount 0.99", "--gamma"),
    (BOX + "--critic-weight-decay 1e-2", "--critic-l2"),
    (BOX + "--layer-norm", "--norm"),
    (BOX + "--norm LayerNorm", "'layer'"),
    (BOX + "--critic-loss smooth_l1", "'huber'"),
    (BOX + "--prioritized", "--prioritised"),
    (BOX + "--random-seed 0", "--seed"),
    (DISCRETE + "--recipe td3", "DQN"),
    (DISCRETE + "--noise-scale 0.1", "DQN"),
    (BOX + "--double-q", "DQN"),
    ("train FetchReach-v9", "gymnasium_robotics:FetchReach-v9"),
    ("train PongNoFrameskip-v4", "ale_py:ALE/Pong-v5"),
    ("train nowhere_robotics:Arm-v0", "nowhere_robotics"),
    # Custom code
    (BOX + "--policy-gradient mymodule:path", "--allow-import mymodule"),
    (BOX + "--td-target mymodule:path --allow-import mymodule.py", "--allow-import mymodule"),
    (BOX + "--td-target mymodule.path --allow-import mymodule", "mymodule:path"),
    (BOX + "--policy-gradient ./mymodule.py:path --allow-import mymodule", "mymodule:path"),
    (BOX + "--policy-gradient mymodule.py:path --allow-import mymodule.py", "without .py"),
    (BOX + "--policy-gradient mymodule:path --allow-import mymodule", "no module 'mymodule'"),
    (BOX + "--policy-gradient mymodule:path --import mymodule", "--allow-import"),
    (BOX + "--policy-gradients mymodule:path", "--policy-gradient"),
    (BOX + "--critic-loss torch.nn.MSELoss", "'mse'"),
    (BOX + "--algorithm td3", "--recipe td3"),
    (BOX + "--algorithm sac", "DDPG for a Box"),
    (BOX + "--algorithm mymodule:Cautious", "--allow-import mymodule"),
    (BOX + "--agent mymodule:Cautious", "--algorithm MODULE:NAME"),
    (DISCRETE + "--td-target mymodule:path", "--allow-import mymodule"),
    (BOX + "--actor-network mymodule:actor", "--allow-import mymodule"),
    (BOX + "--actor-network mymodule.actor --allow-import mymodule", "module:name"),
    (BOX + "--critic-network cnn", "module:name"),
    (BOX + "--network mymodule:actor", "critic_network"),
    (BOX + "--q-network mymodule:q --allow-import mymodule", "--actor-network and --critic-network"),
    (DISCRETE + "--critic-network mymodule:critic --allow-import mymodule", "--q-network"),
    ("tune Pendulum-v1 --algorithm td3", "--recipe td3"),
    ("tune Pendulum-v1 --policy-gradient mymodule:path", "tune"),
]


FLAGS = COMMANDS["train"].flags() | _options_of_all_algorithms()


def unknown_flag(typed):
    """Return the first flag, if ``ddpg train`` does not know it: all such flags have the same path to their message."""
    command, *words = typed.split()
    flag = next((word for word in words if word.startswith("-")), "")
    known = flag[2:].removeprefix("no-").replace("-", "_") in FLAGS
    return None if command != "train" or not flag or known else flag


UNKNOWN = {typed: unknown_flag(typed) for typed, _ in MISTAKES}
SLOW = {typed for index, typed in enumerate(typed for typed in UNKNOWN if UNKNOWN[typed]) if index % 8}
# Wrong values of options with choices: that of the activation is fast.
SLOW |= {BOX + f"--noise {name}" for name in ("NormalActionNoise", "OrnsteinUhlenbeckActionNoise")}
SLOW |= {BOX + words for words in ("--optimizer torch.optim.Adam", "--norm LayerNorm", "--critic-loss smooth_l1")}
SLOW |= {BOX + "--critic-loss torch.nn.MSELoss", BOX + "--hidden [64,64]", DISCRETE + "--network cnn"}
assert {typed for typed, _ in MISTAKES} >= SLOW


@pytest.mark.parametrize(
    ("typed", "suggestion"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case[0] in SLOW), id=case[0].replace("/", "|"))
        for case in MISTAKES
    ],
)
def test_a_foreign_option_is_a_one_line_error_with_the_right_suggestion(
    typed, suggestion, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(typed.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert suggestion in err
    assert not list(tmp_path.iterdir())


def test_every_unknown_flag_has_its_suggestion():
    """Without parsing the hundred flags that are known, which takes 0.1 s."""
    assert len(MISTAKES) >= 100
    for typed, suggestion in MISTAKES:
        if UNKNOWN[typed]:
            with pytest.raises(UsageError) as caught:
                refuse_unknown([UNKNOWN[typed]], FLAGS, "ddpg train")
            assert suggestion in str(caught.value), typed


def test_existing_names_are_not_foreign_and_suggested_names_exist():
    flags = {name for command in COMMANDS.values() for name in command.flags()}
    options = {field.name for kind in (DDPGConfig, DQNConfig) for field in dataclasses.fields(kind)}
    assert {name for here in name_hints.RENAMED.values() for name in here} <= flags | options
    assert not {*name_hints.ADVICE, *name_hints.RENAMED} & (options - {"learning_rate"})
    for kind in (Train, Tune):
        assert not {*name_hints.ADVICE, *name_hints.RENAMED} & {*kind.flags()} - {"env"}
    assert {*name_hints.COMMANDS.values()} == {*COMMANDS}
    assert not {*name_hints.COMMANDS} & {*COMMANDS}


def test_a_suggestion_explains_units_that_differ(capsys):
    """A unit that differs, such as updates instead of steps: the same number would copy the target too rarely."""
    assert {*name_hints.MEANT} <= {*name_hints.RENAMED}
    assert main([*DISCRETE.split(), "--target-network-frequency", "500"]) == 2
    assert lacking(capsys.readouterr().err, "--target-update-interval", "updates", "updates_per_step") == []
    assert main([*DISCRETE.split(), "--exploration-fraction", "0.1"]) == 2
    assert lacking(capsys.readouterr().err, "--exploration-steps", "number", "steps") == []
    with refuses(UsageError, "target_update_interval updates_per_step"):
        DQNConfig(target_network_frequency=500)
    with refuses(UsageError, "target_update_interval updates"):
        DQNConfig(target_update_freq=500)


def test_integers_may_have_exponents():
    made = Train.parse(["Pendulum-v1", "--buffer-size", "2e4", "--total-timesteps", "1e5"], "ddpg train")
    assert (made.args[0].buffer_size, made.func.total_timesteps) == (20_000, 100_000)
    with refuses(UsageError, "buffer_size 0.5"):
        Train.parse(["Pendulum-v1", "--buffer-size", "0.5"], "ddpg train")


def test_foreign_names_are_recognised_in_python_and_in_files(tmp_path, capsys):
    with refuses(UsageError, "'learning_starts'"):
        DDPGConfig(start_steps=100)
    with refuses(UsageError, "'hidden'"):
        DQNConfig(net_arch=(64, 64))
    for text, suggestion in (
        ("seed = 3", "--seed"),
        ("total_timesteps = 100", "--total-timesteps"),
        ("replay_size = 100", "'buffer_size'"),
    ):
        (tmp_path / "options.toml").write_text(text)
        assert main(["train", "Pendulum-v1", "--config", str(tmp_path / "options.toml")]) == 2
        assert suggestion in capsys.readouterr().err


FLAGS_OF_COMMANDS = [
    (verb, name)
    for command, verb in ((Train, "train"), (Tune, "tune"))
    for name in sorted(command.flags().keys() - {"env"})
]


@pytest.mark.parametrize("flags", [FLAGS_OF_COMMANDS[::8], pytest.param(FLAGS_OF_COMMANDS, marks=pytest.mark.slow)])
def test_flags_in_a_file_of_options_are_reported_as_flags(flags, tmp_path, capsys):
    """Even if an option has a similar name, or the name has another hint in other files."""
    path = tmp_path / "options.toml"
    for verb, name in flags:
        path.write_text(f"{name} = 3\n")
        assert main([verb, "Pendulum-v1", "--config", str(path)]) == 2
        error = capsys.readouterr().err
        assert f"no field '{name}': it is a flag of ddpg {verb}, not an option of the algorithm" in error
        assert f"--{name.replace('_', '-')} on the command line" in error


def test_a_studys_setting_inside_a_table_is_reported_as_such(tmp_path, capsys):
    path = tmp_path / "study.toml"
    path.write_text("environments = ['Pendulum-v1']\n[configurations]\na = { evaluation_interval = 5 }\n")
    assert main(["study", str(path)]) == 2
    assert "in a study, evaluation_interval above its tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("seed = 3", "seeds = [3]"),
        ("env = 'Pendulum-v1'", "environments = "),
        ("algo = 'td3'", "configurations = "),
        ("n_timesteps = 100", "'total_timesteps'"),
        ("eval_freq = 100", "'evaluation_interval'"),
        ("configurations = { a = { lr = 1e-3 } }", "'lr'"),
        ("configurations = { a = 'td3' }", "DQN"),
    ],
)
def test_a_studys_mistakes(text, suggestion, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text("environments = ['CartPole-v1']\n" * ("env " not in text) + text)
    assert main(["study", "study.toml"]) == 2
    err = capsys.readouterr().err
    assert suggestion in err
    assert "seed=0" not in err


def test_a_missing_package_is_reported_with_the_extra_that_installs_it():
    assert "ddpg-paths[robotics]" in how_to_install("gymnasium_robotics")
    assert "ddpg-paths[mujoco]" in how_to_install("MuJoCo is not installed, run `pip install ...`")
    assert "ddpg-paths[box2d]" in how_to_install("Box2D is not installed")
    assert "ddpg-paths[robotics]" in other_package_hint("FetchReach-v4")
    assert other_package_hint("Pendulum-v1") == ""
