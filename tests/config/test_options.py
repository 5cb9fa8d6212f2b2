"""The schema of options that Python, TOML files and flags share: parsing, validation and messages."""

import dataclasses

import pytest
from agent_options import DQN_PRESETS
from refusals import refuses

from ddpg import DDPGConfig, DQNConfig, UsageError
from ddpg.config.presets import PRESETS, SUITES, Preset, preset_config, preset_name
from ddpg.config.toml_file import read_toml


def test_json_round_trip():
    config = DDPGConfig(hidden=(3, 4), gamma=0.5, norm="layer", jit=False)
    assert DDPGConfig.from_json(config.to_json()) == config


def test_functions_are_not_saved_and_loading_names_each_missing_one():
    def own_path(actor, critic, states):
        return []

    def own_layers(states):
        return states

    one = DDPGConfig(policy_gradient=own_path)
    with refuses(UsageError, "policy_gradient own_path was config=") as caught:
        DDPGConfig.from_json(one.to_json())
    assert "load(path, policy_gradient" not in str(caught.value)  # load takes networks only
    with refuses(UsageError, "actor_network own_layers was load(path, actor_network=...) config="):
        DDPGConfig.from_json(DDPGConfig(actor_network=own_layers).to_json())
    with refuses(UsageError, "policy_gradient own_path actor_network own_layers were config="):
        DDPGConfig.from_json(one.replace(actor_network=own_layers).to_json())


def test_an_option_that_an_own_class_has_lost_is_named():
    """The message does not list all options that the class has."""
    own = dataclasses.make_dataclass("Own", [], bases=(DDPGConfig,), frozen=True)
    with refuses(UsageError, "Own 'caution' any more config=") as caught:
        own.from_json(own().to_json() | {"caution": 0.5})
    assert "gamma" not in str(caught.value)


def test_toml(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('hidden = [3, 4]\ngamma = 1\nnoise = "ornstein_uhlenbeck"\njit = false\n')
    config = DDPGConfig(**read_toml(path))
    assert (config.hidden, config.gamma, config.noise, config.jit) == ((3, 4), 1.0, "ornstein_uhlenbeck", False)
    assert isinstance(config.gamma, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gama = 1", "gama 'gamma'"),
        ("gamma = ", "TOML"),
        (None, "configuration"),
    ],
)
def test_bad_toml(tmp_path, text, message):
    path = tmp_path / "c.toml"
    if text is not None:
        path.write_text(text)
    with refuses(UsageError, message):
        DDPGConfig().replace(**read_toml(path))


def test_unreadable_toml_files_are_refused(tmp_path):
    with refuses(UsageError, "directory"):
        read_toml(tmp_path)
    (tmp_path / "latin").write_bytes(b"activation = '\xe9'")
    with refuses(UsageError, "utf-8"):
        read_toml(tmp_path / "latin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": ()}, "hidden"),
        ({"hidden": (64.5,)}, "hidden 64.5"),
        ({"hidden": 64}, "hidden 64"),
        ({"gamma": 1.1}, "gamma 1.1 [0, 1]"),
        ({"gamma": float("nan")}, "gamma nan"),
        ({"gamma": "high"}, "gamma high"),
        ({"tau": 0}, "tau 0.0"),
        ({"tau": 1e-46}, "tau 1e-46 float32"),
        ({"adam_beta1": 1 - 1e-12}, "adam_beta1 float32"),
        ({"actor_learning_rate": 0}, "actor_learning_rate 0.0"),
        ({"critic_learning_rate": float("inf")}, "critic_learning_rate inf"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"batch_size": 1.5}, "batch_size 1.5"),
        ({"batch_size": True}, "batch_size True"),
        ({"learning_starts": -1}, "learning_starts -1"),
        ({"noise": "gausian"}, "'gaussian'"),
        ({"noise_scale": -1}, "noise_scale -1.0"),
        ({"noise_dt": -1}, "noise_dt -1.0 0"),
        ({"noise_dt": float("inf")}, "noise_dt inf"),
        ({"noise_theta": -0.1}, "noise_theta -0.1 0"),
        ({"noise_theta": float("nan")}, "noise_theta nan"),
        ({"noise": "ornstein_uhlenbeck", "noise_dt": 10}, "theta 0.15 dt 10.0"),
        ({"action_layer": 2}, "action_layer 2 hidden critic_network"),
        ({"critic": "categorical", "critic_loss": min, "td_target": max}, "critic_loss=min td_target=max;"),
        ({"prioritised": "lap", "critic_loss": min}, "critic_loss=min"),
        ({"weight_decay": 0.1, "optimizer": min}, "weight_decay 0.1 got min"),
        ({"on_bad_transition": "dropp"}, "on_bad_transition dropp 'drop'"),
        ({"step_timeout": 0}, "step_timeout 0.0 0"),
        ({"max_gradient_norm": float("inf")}, "max_gradient_norm inf 0"),
        ({"action_gradient_clip": float("inf")}, "action_gradient_clip inf 0"),
        ({"clip_delta": float("inf"), "td_target": "output_delta"}, "clip_delta inf 0"),
        ({"batch_size": float("inf")}, "batch_size inf"),
        ({"tau": 10**400}, "tau integer bits float"),
        ({"jit": "yes"}, "jit yes"),
        ({"compiler": "native", "jit": False}, "compiler native jit False"),
        ({"td_target": "placeholder"}, "jit False updates_per_call 1"),
        ({"learning_rates": 1}, "learning_rates"),
        ({"learning_rate_schedule": "cosine"}, "learning_rate_schedule cosine"),
        ({"optimizer": ()}, "optimizer 'adam' Callable"),  # neither a name nor a class, as an optimiser already made
        # Networks and their steps
        ({"action_layer": -1}, "action_layer -1"),
        ({"block": "dense"}, "block='dense'"),
        ({"critic_l2": -1.0}, "critic_l2=-1.0"),
        ({"critic_loss": "hubert"}, "'huber'"),
        ({"pre_activation_penalty": float("inf")}, "pre_activation_penalty=inf"),
        ({"max_gradient_norm": 0.0}, "max_gradient_norm=0.0 0"),
        ({"adam_beta1": 1.0}, "adam_beta1=1.0"),
        ({"adam_beta1": 0.5, "optimizer": "sgd"}, "adam_beta1=0.5 optimizer='adam' 'sgd'"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"weight_decay": 0.1, "optimizer": "sgd"}, "weight_decay"),
        # TD3, the averaged actor, and the joint pass of CrossQ
        ({"n_critics": 0}, "n_critics=0 1"),
        ({"policy_delay": 0}, "policy_delay=0"),
        ({"target_policy_noise": -0.1}, "target_policy_noise=-0.1"),
        ({"target_noise_clip": 0.0}, "target_noise_clip=0.0"),
        ({"actor_average": -1}, "actor_average -1"),
        ({"target": "none"}, "critic_norm='renorm'"),
        ({"target": "none", "norm": "renorm", "critic_norm": "layer"}, "critic_norm='renorm'"),
        ({"target": "joint_ema"}, "critic_norm='renorm'"),
        *(
            (
                {"target": target, "critic_norm": "renorm", "td_target": "residual_gradient"},
                f"target='{target}' td_target='residual_gradient'",
            )
            for target in ("none", "joint_ema")
        ),
        # Critics of a distribution
        ({"critic": "normal"}, "critic normal"),
        ({"critic": "categorical", "atoms": 1}, "atoms 1"),
        ({"critic": "categorical", "v_min": 3.0, "v_max": 3.0}, "v_min 3.0"),
        ({"critic": "categorical", "target_spread": -0.5}, "target_spread -0.5"),
        ({"critic": "categorical", "target_spread": 1e-30}, "target_spread 1e-30 0.001"),
        ({"critic": "categorical", "v_min": 1e8, "v_max": 1e8 + 1}, "atoms v_min v_max float32"),
        ({"critic": "categorical", "v_min": 1e3, "v_max": 1000.01, "atoms": 1001}, "atoms v_min v_max float32"),
        ({"critic": "categorical", "critic_loss": "huber"}, "critic categorical loss"),
        ({"critic": "distributional", "critic_loss": "huber"}, "critic distributional critic_loss"),
        ({"critic": "distributional", "prioritised": "lap"}, "critic distributional prioritised"),
        ({"critic": "distributional", "target_spread": 0.75}, "critic distributional target_spread"),
        ({"block": "residual", "critic_hidden": (512,)}, "critic_hidden (512,) (512, 512)"),
        ({"block": "residual", "critic_hidden": (64, 32)}, "critic_hidden (64, 32) block"),
        ({"block": "residual", "critic_norm": "layer"}, "critic_norm='layer' 'same' block='residual'"),
        # The replay memory
        ({"n_steps": 0}, "n_steps=0 1"),
        ({"prioritised": "rank"}, "prioritised='rank' 'proportional' 'lap'"),
        ({"priority_exponent": 0.5}, "priority_exponent=0.5"),
        ({"prioritised": "lap", "priority_exponent": -1.0}, "priority_exponent=-1.0"),
        ({"priority_correction": 1.5}, "priority_correction=1.5 [0, 1]"),
        ({"priority_correction_steps": 0}, "priority_correction_steps=0"),
        ({"prioritised": "lap", "td_target": "output_delta", "clip_delta": 1.0}, "clip_delta=1.0"),
        ({"normalize_rewards": True, "rescale_rewards": True}, "normalize_rewards rescale_rewards"),
        ({"dataset_share": 1.5}, "dataset_share=1.5 [0, 1]"),
        ({"dataset_share": 0.5, "prioritised": "lap"}, "dataset_share=0.5 prioritised='lap'"),
        ({"hindsight": 4, "n_steps": 2}, "hindsight 4 n_steps prioritised"),
        ({"hindsight": 4, "prioritised": "lap"}, "hindsight 4 n_steps prioritised"),
        ({"hindsight": 4, "random_shift": 3}, "hindsight=4 random_shift=3"),
        ({"random_shift": -1}, "random_shift=-1 0"),
        # Schedules
        ({"noise_schedule": "cosine"}, "noise_schedule='cosine'"),
        ({"noise_final": -1.0}, "noise_final=-1.0"),
        ({"noise_schedule": "linear", "noise_scale": 0.0}, "noise_scale 0"),
        ({"noise_schedule": "linear", "noise_scale": 1e-30, "noise_final": 0.1}, "noise_scale 1e-30 noise_final 0.1"),
        ({"actor_learning_rate_schedule": "linnear"}, "'linear'"),
    ],
    ids=str,
)
def test_bad_values(change, message):
    """Values out of range, and options that exclude each other."""
    with refuses(UsageError, message):
        DDPGConfig().replace(**change)


@dataclasses.dataclass(frozen=True)
class Own(DDPGConfig):
    """The options of a user's own algorithm, which refuses a value as Python's own classes do."""

    shares: tuple[float, ...] = (0.5, 1.0)

    def __post_init__(self):
        super().__post_init__()
        if sum(self.shares) > 2:
            raise ValueError(f"shares add up to {sum(self.shares)}")


def test_a_list_of_numbers_keeps_its_fractions():
    assert Own().shares == (0.5, 1.0)
    assert Own(shares=(1, 0.25)).shares == (1.0, 0.25)
    assert DDPGConfig(hidden=[8.0]).hidden == (8,)
    with refuses(UsageError, "hidden=(8.5,) int"):
        DDPGConfig(hidden=(8.5,))


def test_an_exception_of_a_class_of_options_is_a_refused_value():
    with refuses(UsageError, "Own ValueError shares 3.0"):
        Own(shares=(1.0, 2.0))
    with refuses(UsageError, "Own ValueError shares 3.0"):
        Own.from_json({"shares": [1.0, 2.0]})


def test_a_declaration_that_would_change_another_value_or_none_is_refused():
    """Without the check γ would be 0.5 in the first class, and 0.99 in the second."""
    with refuses(UsageError, "discount another name"):
        type("Discounted", (DDPGConfig,), {"__annotations__": {"discount": float}, "discount": 0.5})
    with refuses(UsageError, "gamma: float 0.5"):
        type("Untyped", (DDPGConfig,), {"gamma": 0.5})


def test_a_new_default_of_an_inherited_option_leaves_its_declaration_as_it_is():
    fields = [("critic", str, "categorical"), ("batch_size", int, 64)]
    own = dataclasses.make_dataclass("Own", fields, bases=(DDPGConfig,), frozen=True)
    assert (own().critic, own().batch_size) == ("categorical", 64)
    for change in ({"critic": "catgorical"}, {"batch_size": 2**21}, {"batch_size": 0}):
        with refuses(UsageError, next(iter(change))):
            own(**change)
    declared = {field.name: field.metadata for field in dataclasses.fields(DDPGConfig)}
    assert {field.name: field.metadata for field in dataclasses.fields(own)} == declared


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DDPGConfig().gamma = 0.5


def test_a_preset_overrides_options_of_its_recipe(monkeypatch):
    monkeypatch.setitem(PRESETS, "Some-v0", Preset(7, {"tau": 0.25, "hidden": (5, 6)}, recipe="td3"))
    config = preset_config("Some-v0", gamma=0.5)
    assert (config.policy_delay, config.learning_starts) == (2, 10_000)  # the recipe's
    assert (config.tau, config.hidden, config.gamma) == (0.25, (5, 6), 0.5)


def test_a_suite_has_one_preset():
    of_suite, of_others = preset_config("dmc/cheetah-run-v0"), preset_config("dm_control/cheetah-run-v0")
    expected = of_others.replace(norm="renorm_preactivation", target_critics="mean")
    assert of_suite == preset_config("dmc/walker-walk-v0") == expected
    assert preset_name("dmc/walker-walk-v0") == "dmc/"
    assert preset_name("dm_control/cheetah-run-v0") is None


def test_an_environment_has_the_preset_of_another_version(monkeypatch):
    assert preset_config("Hopper-v4") == preset_config("Hopper-v5") != preset_config("Hop-v5")
    assert preset_name("CartPole-v0", DQNConfig) == "CartPole-v1"
    assert preset_name("mine/Hopper-v4") is None
    monkeypatch.setitem(PRESETS, "Hopper-v4", Preset(7))
    assert preset_name("Hopper-v4") == "Hopper-v4"


@pytest.mark.parametrize("env_id", [*PRESETS, *SUITES])
def test_a_preset_does_not_apply_to_another_algorithm(env_id):
    """A wrapper may have made the actions discrete."""
    other = DDPGConfig if env_id in DQN_PRESETS else DQNConfig
    assert preset_config(env_id, other) == preset_config("NoPreset-v0", other)
    assert preset_name(env_id, other) is None


@pytest.mark.parametrize("env_id", [*PRESETS, *SUITES])
def test_presets_are_valid(env_id):
    kind = DQNConfig if env_id in DQN_PRESETS else DDPGConfig
    config = preset_config(env_id, kind, tau=0.5)
    assert config.tau == 0.5
    for name, value in (PRESETS | SUITES)[env_id].options.items():
        assert getattr(config, name) == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0}, "learning_rate 0.0"),
        ({"target_update_interval": -1}, "target_update_interval -1"),
        ({"exploration_final": 1.5}, "exploration_final 1.5 [0, 1]"),
        ({"exploration_steps": 0}, "exploration_steps 0"),
        ({"network": "rnn"}, "network rnn"),
        ({"noise": "gaussian"}, "noise"),
        ({"target": "none"}, "DQN"),
        ({"target": "joint_ema"}, "DQN"),
    ],
    ids=str,
)
def test_bad_dqn_values(change, message):
    with refuses(UsageError, message):
        DQNConfig().replace(**change)


@pytest.mark.parametrize("kind", [DDPGConfig, DQNConfig])
def test_every_option_has_a_help_text(kind):
    assert all(field.metadata["help"] for field in dataclasses.fields(kind))
