"""The equations on the pages of options, computed in NumPy as written, and compared with the code.

Each test contains its page's equation, so a changed or new one must be read and tested here.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from ddpg.agents.base import _with_default_gamma
from ddpg.agents.learn_loop import LearnLoop
from ddpg.algorithms.base import UpdateCounter
from ddpg.algorithms.ddpg import next_actions
from ddpg.algorithms.td3 import TD3Update
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.gradients.backward import huber_weights, weight_gradient
from ddpg.gradients.bounding import with_pre_activation_penalty
from ddpg.gradients.td import huber, mean_square, stop_gradient
from ddpg.networks.layers import batch_renormalization, layer_normalization, output_layer, rms_normalization
from ddpg.networks.observer import observing
from ddpg.networks.projections import note_affine, projected_after, unit_weights
from ddpg.networks.value import Prediction, ValueNetwork
from ddpg.policies.schedules import SCHEDULES, interpolate
from ddpg.replay.minibatch import Batch
from ddpg.replay.normalizers import ObservationNormalizer, RewardNormalizer
from ddpg.replay.priorities import Priorities
from ddpg.replay.random_shift import RandomShift

v1 = tf.compat.v1
PAGES = Path(__file__).parents[1] / "docs" / "options"
EVALUATED: dict[str, str] = {}  # page: its equations

# Pages whose block is tested elsewhere, or is not an equation.
ELSEWHERE = {
    "bc_alpha": "tests/algorithms/test_td3_bc.py",
    "block": "tests/networks: residual blocks against NumPy",
    "critic_hidden": "tests/agents/test_ddpg.py: the shapes; tests/algorithms/test_td3.py: their use, in NumPy",
    "dataset_share": "tests/replay/test_buffer.py and tests/agents/test_memory_options.py: the rows that are drawn",
    "hindsight": "tests/agents/test_hindsight.py: the share, the goals and their rewards",
    "n_steps": "docs/equations.md, which the tests run",
    "overlap": "an order of calls: tests/agents/test_learn_loop.py",
    "own_networks": "tests/networks/test_own_layers.py: the actor in NumPy, with what stands behind the function",
    "parameter_noise": "tests/policies/test_exploration_parameter_noise.py",
    "precision": "tests/compiler/test_bfloat16.py",
    "shared_encoder": "tests/networks/test_actor_shared_encoder.py: the actor in NumPy, and where gradients end",
    "target": "docs/equations.md and tests/algorithms/test_crossq.py",
}


def states(page, text):
    """Mark a test as the one that computes ``text``, the equations of ``page``."""
    EVALUATED[page] = text.strip("\n")
    return lambda function: function


def block_of(page):
    found = re.findall(r"```(?:math|text)\n(.*?)\n```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    return found[0] if found else None


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_every_equation_has_a_test(page):
    text = block_of(page)
    assert (text is None) or (page in ELSEWHERE) != (page in EVALUATED), page
    assert page not in EVALUATED or text == EVALUATED[page]


@states("target_policy_noise", r"""
\tilde{a} = \text{clip}(\text{clip}(\mu'(s'), \text{low}, \text{high}) + h \cdot \text{clip}(\varepsilon, -c,
    c), \text{low}, \text{high}) \qquad
\varepsilon \sim N(0, \sigma^2) \qquad
h = (\text{high} - \text{low})/2
""")  # fmt: skip
@pytest.mark.parametrize("box", [(-1.0, 1.0), (-1.0, 3.0)])
def test_target_policy_noise(box, session):
    (low, high), sigma, c = box, 0.4, 0.3
    h = (high - low) / 2
    mu = np.array([[-2.0], [0.5], [2.5], [9.0]], np.float32) * h  # of a linear actor, some far outside
    noise = np.array([[2.0], [-0.3], [0.9], [-2.0]], np.float32)
    actor = SimpleNamespace(target=lambda states: tf.constant(mu), low=np.float32([low]), high=np.float32([high]))
    config = SimpleNamespace(target_policy_noise=sigma, target_noise_clip=c)
    batch = Batch(*[tf.zeros([4, 1])] * 5, noise=tf.constant(noise))
    update = SimpleNamespace(actor=actor, config=config)
    found = session.run(TD3Update._smoothed(update, next_actions(actor, batch, online=False), batch))
    inner = np.clip(mu, low, high) + h * np.clip(sigma * noise, -c, c)
    np.testing.assert_allclose(found, np.clip(inner, low, high), rtol=1e-6)


@states("n_critics", r"""
\begin{aligned}
y &= r + \gamma (1 - \text{terminated}) \min_i Q'_i(s', \tilde{a}) \\
\text{mean: } y &= r + \gamma (1 - \text{terminated}) \frac{1}{n} \sum_i Q'_i(s', \tilde{a}) \\
L_i &= \frac{1}{B} \sum (Q_i(s, a) - y)^2 \quad \text{for each critic } i \\
\nabla_\theta J &= \frac{1}{B} \sum \nabla_a Q_1(s, a) |_{a = \mu(s)} \nabla_\theta \mu(s)
\end{aligned}
""")  # fmt: skip
def test_n_critics(session, rng):
    """y; tests/algorithms/test_td3.py tests the losses and the actor's gradient."""
    r, terminated, *values = rng.normal(size=(5, 4, 1)).astype(np.float32)
    terminated = (terminated > 0).astype(np.float32)
    zeros = tf.zeros([4, 1])
    critic = SimpleNamespace(td_target=lambda bootstrap, successor: bootstrap(successor.q))
    batch = Batch(zeros, zeros, tf.constant(r), zeros, tf.constant(terminated))
    successors = [Prediction(*[tf.constant(value)] * 2) for value in values]
    for name, combined in (("min", np.min(values, axis=0)), ("mean", np.mean(values, axis=0))):
        update = SimpleNamespace(config=SimpleNamespace(discount=0.9, target_critics=name), critic=critic)
        found = session.run(TD3Update._from_critics(update, batch, successors))
        np.testing.assert_allclose(found, r + 0.9 * (1 - terminated) * combined, rtol=1e-6)


@states("norms", r"""
\begin{aligned}
\text{layer:} \quad & \frac{x - \text{mean}(x)}{\sqrt{\text{var}(x) + 10^{-5}}} \cdot g + b \\
\text{rms:} \quad & \frac{x}{\sqrt{\text{mean}(x^2) + 10^{-5}}} \cdot g \\
\text{renorm:} \quad & \left( \frac{x - \mu_B}{\sigma_B} r + d \right) g + b, \quad r
    = \text{clip}(\sigma_B / \sigma, 1/3, 3), \quad d = \text{clip}((\mu_B - \mu) / \sigma, -5, 5) \\
& \sigma_B = \sqrt{\text{var}_B(x) + 0.001}, \quad \sigma = \sqrt{\text{var} + 0.001};
    \quad \text{acting: } \frac{x - \mu}{\sigma} g + b \\
& \mu \leftarrow 0.99 \mu + 0.01 \mu_B, \quad \text{var} \leftarrow 0.99 \text{var} + 0.01 \text{var}_B
\end{aligned}
""")  # fmt: skip
def test_norms(session, rng):
    from ddpg._tflearn import tflearn

    x = (rng.normal(size=(6, 5)) * [1, 9, 0.01, 2, 3] + [0, 3, 0, -99, 1]).astype(np.float32)
    g, b, mu, var = rng.uniform(0.5, 2, (4, 5)).astype(np.float32)
    layer = layer_normalization(tf.constant(x), "layer")
    rms = rms_normalization(tf.constant(x), "rms")
    acting = batch_renormalization(tf.constant(x), "renorm", warm_up=0)
    mode = tflearn.get_training_mode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tflearn, "get_training_mode", lambda: tf.constant(True))
        training = batch_renormalization(tf.constant(x), "renorm", warm_up=0)
        soft = batch_renormalization(tf.constant(x), "soft", warm_up=0, epsilon=1.0, r_min=0.0)
    assert tflearn.get_training_mode is mode
    session.run(v1.global_variables_initializer())
    given = {"gamma": g, "beta": b, "moving_mean": mu, "moving_variance": var}
    variables = {variable.op.name: variable for variable in v1.global_variables()}
    for name, variable in variables.items():
        if name.rpartition("/")[2] in given:
            variable.load(given[name.rpartition("/")[2]], session)

    def renorm(epsilon, least):
        mean, s_b, s = x.mean(axis=0), np.sqrt(x.var(axis=0) + epsilon), np.sqrt(var + epsilon)
        r, d = np.clip(s_b / s, least, 3), np.clip((mean - mu) / s, -5, 5)
        return ((x - mean) / s_b * r + d) * g + b

    by_row = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(session.run(layer), by_row * g + b, rtol=1e-3, atol=1e-4)
    by_size = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(session.run(rms), by_size * g, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(session.run(acting), (x - mu) / np.sqrt(var + 0.001) * g + b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(session.run(training), renorm(0.001, 1 / 3), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(session.run(soft), renorm(1.0, 0.0), rtol=1e-3, atol=1e-3)
    moved = session.run([variables["renorm/moving_mean"], variables["renorm/moving_variance"]])
    np.testing.assert_allclose(moved[0], 0.99 * mu + 0.01 * x.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(moved[1], 0.99 * var + 0.01 * x.var(axis=0), rtol=1e-4)


@states("adam_beta1", r"""
m \leftarrow \beta_1 m + (1 - \beta_1) g \qquad
v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \qquad
\theta \leftarrow \theta - \alpha \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \cdot \frac{m}{\sqrt{v} + \epsilon}
""")  # fmt: skip
def test_adam_beta1(session):
    check_adams_steps(session, beta1=0.5)


@states("weight_decay", r"""
m \leftarrow \beta_1 m + (1 - \beta_1) g \qquad
v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \qquad
\theta \leftarrow \theta - \alpha \lambda \theta - \alpha \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \cdot
    \frac{m}{\sqrt{v} + \epsilon}
""")  # fmt: skip
def test_weight_decay(session):
    check_adams_steps(session, decay=0.5)


def check_adams_steps(session, beta1=0.9, decay=0.0):
    """Compare three steps at a rate of 0.1 with the equations."""
    from ddpg.networks.base import make_optimizer, optimizer_of

    expected, m, v = np.array([[1.0, -2.0]]), 0, 0
    theta = v1.get_variable("theta", initializer=expected.astype(np.float32), use_resource=True)
    fed = v1.placeholder(tf.float32, [1, 2])
    optimizer = make_optimizer(optimizer_of(DDPGConfig(adam_beta1=beta1, weight_decay=decay)), 0.1)
    step = optimizer.apply_gradients([(fed, theta)])
    session.run(v1.global_variables_initializer())
    for t, g in enumerate(np.array([[[1.0, -3.0]], [[0.5, 2.0]], [[-4.0, 1e-4]]]), 1):
        session.run(step, {fed: g})
        m, v = beta1 * m + (1 - beta1) * g, 0.999 * v + 0.001 * g**2
        adams = 0.1 * np.sqrt(1 - 0.999**t) / (1 - beta1**t) * m / (np.sqrt(v) + 1e-8)
        expected = expected - 0.1 * decay * expected - adams
        np.testing.assert_allclose(session.run(theta), expected, rtol=1e-5)


@states("critic_l2", r"""
L = \frac{1}{B} \sum (q - y)^2 + \frac{\lambda}{2} \lVert W \rVert^2 \qquad
\frac{\partial}{\partial W} \frac{\lambda}{2} \lVert W \rVert^2 = \lambda W
""")  # fmt: skip
def test_critic_l2(session):
    weights = v1.get_variable("w", initializer=[[1.0], [2.0]], use_resource=True)
    biases = v1.get_variable("b", initializer=[3.0], use_resource=True)
    stub = SimpleNamespace(l2=0.1)
    pairs = [ValueNetwork._decayed(stub, tf.ones(variable.shape), variable)[0] for variable in (weights, biases)]
    session.run(v1.global_variables_initializer())
    found = session.run(pairs)
    np.testing.assert_allclose(found[0], [[1.1], [1.2]], rtol=1e-6)
    np.testing.assert_allclose(found[1], [1.0])


@states("gamma", r"""
\gamma = \min(\max(1 - 5/T, 0.95), 0.995)
""")  # fmt: skip
@pytest.mark.parametrize("steps", [20, 100, 200, 1000, 5000])
def test_gamma(steps):
    env = SimpleNamespace(spec=SimpleNamespace(max_episode_steps=steps))
    assert _with_default_gamma(DDPGConfig(gamma=None), env).gamma == min(max(1 - 5 / steps, 0.95), 0.995)


@states("max_gradient_norm", r"""
g \leftarrow g \cdot \min(1, c / \lVert g \rVert) \qquad
\lVert g \rVert^2 = \sum_v \lVert g_v \rVert^2 \text{ over all variables } v
""")  # fmt: skip
@pytest.mark.parametrize("c", [1.0, 100.0])
def test_max_gradient_norm(c, session):
    from ddpg.networks.base import Network

    variables = [v1.get_variable(name, shape, use_resource=True, initializer=v1.zeros_initializer())
                 for name, shape in (("one", [2]), ("two", [1, 1]))]  # fmt: skip
    gradients = [np.float32([3, 4]), np.float32([[12]])]
    stub = SimpleNamespace(
        scope="critic",
        _projections=[],
        max_gradient_norm=c,
        _check_graph=lambda: None,
        optimizer=v1.train.GradientDescentOptimizer(1.0),
    )
    step = Network.apply_gradients(stub, list(zip(map(tf.constant, gradients), variables, strict=True)))
    session.run(v1.global_variables_initializer())
    session.run(step)
    for found, gradient in zip(session.run(variables), gradients, strict=True):
        np.testing.assert_allclose(-found, gradient * min(1, c / 13), rtol=1e-6)


@states("normalize_observations", r"""
\hat{s} = \text{clip} \left( \frac{s - \text{mean}}{\sqrt{\text{variance} + 10^{-8}}}, -10, 10 \right)
""")  # fmt: skip
def test_normalize_observations(rng):
    s = (rng.normal(size=(50, 3)) * [1, 0, 5]).astype(np.float32)
    normaliser = ObservationNormalizer((3,))
    normaliser.update(s)
    s = np.concatenate([s, [[99, 99, -99]]]).astype(np.float32)
    expected = np.clip((s - s[:50].mean(axis=0)) / np.sqrt(s[:50].var(axis=0) + 1e-8), -10, 10)
    np.testing.assert_allclose(normaliser(s), expected, rtol=1e-4, atol=1e-5)


@states("normalize_rewards", r"""
G \leftarrow \gamma G + r \quad \text{(0 at an episode's start)} \qquad
\hat{r} = \frac{r}{\max(\text{std}(G), \max|G| / 5)} \quad \text{(unscaled while every G was 0)}
""")  # fmt: skip
def test_normalize_rewards():
    normaliser = RewardNormalizer(0.5)
    normaliser.update(np.zeros(1), np.zeros(1, bool), [0])
    assert normaliser.scale == 1.0
    normaliser.update(np.array([4.0, -2.0, 8.0]), np.array([False, True, False]), [0, 0, 0])
    returns = [0.0, 4.0, 0.5 * 4 - 2, 8.0]
    assert normaliser.scale == pytest.approx(max(np.std(returns), 8 / 5))


@states("output_init", r"""
\begin{aligned}
\text{small:} \quad & w, b \sim U(-0.003, 0.003) \\
\text{fan_in:} \quad & w, b \sim U(-1/\sqrt{f}, 1/\sqrt{f})
\end{aligned}
""")  # fmt: skip
@pytest.mark.parametrize(("kind", "bound"), [("small", 0.003), ("fan_in", 1 / np.sqrt(400))])
def test_output_init(kind, bound, session):
    with v1.variable_scope(kind):
        output_layer(tf.zeros([1, 400]), 50, kind)
    session.run(v1.global_variables_initializer())
    weights, biases = sorted(session.run(v1.global_variables()), key=np.ndim, reverse=True)
    for values in (weights, biases):
        assert 0.8 * bound < np.abs(values).max() <= bound
    assert np.std(weights) == pytest.approx(bound / np.sqrt(3), rel=0.02)


@states("policy_delay", r"""
\begin{aligned}
\text{every update } k: \quad & \varphi \leftarrow \varphi - \alpha \nabla L \\
\text{where } k \bmod d = 0: \quad & \theta \leftarrow \theta + \beta \nabla_\theta J, \quad \theta',
    \varphi' \text{ move by } \tau
\end{aligned}
""")  # fmt: skip
def test_policy_delay(session):
    count = UpdateCounter("updates")
    assert isinstance(count.every(3, lambda: tf.constant(1), lambda: tf.constant(0)), tf.Tensor)
    assert [count.is_due(k - 1) for k in range(1, 8)] == [(k % 3 == 0,) for k in range(1, 8)]


@states("pre_activation_penalty", r"""
L(\theta) = -\frac{1}{B} \sum Q(s, \tanh(p)) + \frac{c}{BA} \sum p^2 \qquad
\frac{\partial}{\partial p} \frac{c}{BA} \sum p^2 = \frac{2 c p}{BA}
""")  # fmt: skip
def test_pre_activation_penalty(session, rng):
    p = rng.normal(size=(4, 3)).astype(np.float32)
    tensor = tf.constant(p)
    (found,) = tf.gradients(-tf.reduce_sum(tf.tanh(with_pre_activation_penalty(tensor, 0.7))) / 4, tensor)
    expected = -(1 - np.tanh(p) ** 2) / 4 + 2 * 0.7 * p / (4 * 3)
    np.testing.assert_allclose(session.run(found), expected, rtol=1e-4, atol=1e-6)


@states("prioritised", r"""
\begin{aligned}
P(i) &= p_i / \sum p \\
\text{proportional:} \quad p &= (|\delta| + 10^{-6})^\alpha, \quad \alpha = 0.6; \quad w_i =
    \frac{(N P(i))^{-\beta}}{\max_j w_j}; \quad \beta: 0.4 \to 1 \\
L &= \frac{1}{B} \sum w_i \delta_i^2 \\
\text{lap:} \quad p &= \max(|\delta|, 1)^\alpha, \quad \alpha = 0.4 \\
L &= \frac{1}{B} \sum (\delta^2 \text{ where } |\delta| \le 1, \; 2|\delta| - 1 \text{ beyond})
\end{aligned}
""")  # fmt: skip
def test_prioritised(session):
    delta = np.array([0.5, -3.0, 0.0, 2.0])
    for kind, p in (("proportional", (np.abs(delta) + 1e-6) ** 0.6), ("lap", np.maximum(np.abs(delta), 1) ** 0.4)):
        priorities = Priorities(kind, None, 4)
        priorities.add(np.arange(4))
        priorities.update(np.arange(4), delta)
        np.testing.assert_allclose(priorities.state(4)["priorities"], p)
    proportional = Priorities("proportional", None, 4)
    proportional.add(np.arange(4))
    proportional.update(np.arange(4), delta)
    p = (np.abs(delta) + 1e-6) ** 0.6
    w = (4 * p / p.sum()) ** -0.7
    w /= w.max()
    found = proportional.weights(np.arange(4)[None], 0.7)[0]
    np.testing.assert_allclose(found[:, 0], w, rtol=1e-6)
    # The gradient of each loss by q: −2 w δ/B; and −2 δ/B within 1, ∓2/B beyond.
    phi = v1.get_variable("q", initializer=np.zeros((4, 1), np.float32), use_resource=True)
    y = tf.constant(delta[:, None], tf.float32)
    (by_weight, _), = stop_gradient(weight_gradient(phi, tf.constant(found)), y, [phi])  # fmt: skip
    (by_lap, _), = stop_gradient(weight_gradient(phi, huber_weights(phi, y)), y, [phi])  # fmt: skip
    session.run(phi.initializer)
    np.testing.assert_allclose(session.run(by_weight)[:, 0], -2 * w * delta / 4, rtol=1e-6)
    np.testing.assert_allclose(session.run(by_lap)[:, 0], -2 * np.clip(delta, -1, 1) / 4, rtol=1e-6)
    beyond = np.where(np.abs(delta) <= 1, delta**2, 2 * np.abs(delta) - 1)
    assert session.run(huber(phi, y)) == pytest.approx(beyond.mean())
    assert session.run(mean_square(phi, y)) == pytest.approx((delta**2).mean())


@states("random_shift", r"""
x'_{ij} = x_{\text{clip}(i + u,\, 0,\, h - 1),\; \text{clip}(j + v,\, 0,\, w - 1)} \qquad
u, v \sim U\{-k, \dots, k\} \qquad
k = \text{random_shift}
""")  # fmt: skip
def test_random_shift(rng):
    """tests/replay/test_random_shift.py tests other layouts, and the distribution."""
    k, h, w = 2, 4, 5
    shift = RandomShift(k, gym.spaces.Box(0, 255, (h, w), np.uint8))
    x, next_x = rng.integers(0, 256, (2, 9, h, w), dtype=np.uint8)
    one = rng.normal(size=(9, 1))
    corners = shift.draw(rng, 9)
    found = shift(Batch(x.copy(), one, one, next_x.copy(), one), corners)
    for image, shifted, (u, v) in zip(
        [*x, *next_x],
        [*found.observations, *found.next_observations],
        np.concatenate([corners[:, 0], corners[:, 1]]) - k,
        strict=True,
    ):
        expected = [[image[np.clip(i + u, 0, h - 1), np.clip(j + v, 0, w - 1)] for j in range(w)] for i in range(h)]
        np.testing.assert_array_equal(shifted, expected)


@states("schedules", r"""
\text{noise_schedule} = \text{linear}: \quad
\sigma(t) = \sigma_0 + \min \left( 1, \frac{t}{\text{exploration_steps}} \right) (\text{noise_final} -
    \sigma_0) \qquad
\sigma_0 = \text{noise_scale}
""")  # fmt: skip
def test_schedules():
    for t in (0, 30, 100, 999):
        assert interpolate(0.5, 0.1, 100, t) == pytest.approx(0.5 + min(1, t / 100) * (0.1 - 0.5))
    for left in (1.0, 0.5, 0.2, 0.1, 0.0):
        assert SCHEDULES["constant"](left) == 1
        assert SCHEDULES["linear"](left) == left
        assert SCHEDULES["cooldown"](left) == min(1, left / 0.2)
        assert SCHEDULES["linear_to_tenth"](left) == pytest.approx(0.1 + 0.9 * left)


@states("updates_per_step", r"""
\text{owed} \leftarrow \text{owed} + \text{steps} \cdot \text{updates_per_step} \qquad
\text{where owed} \ge \text{updates_per_call}: \text{ make } \lfloor \text{owed} \rfloor \text{ updates}
""")  # fmt: skip
def test_updates_per_step():
    made = []
    config = DDPGConfig(updates_per_step=0.75, updates_per_call=4)
    agent = SimpleNamespace(config=config, compile_seconds=1.0, update=lambda n: made.append(n) or {})
    callbacks = SimpleNamespace(on_update=lambda *_: None)
    loop, owed, expected = LearnLoop(), 0.0, []
    for steps in (1, 2, 8, 3, 3, 1):
        loop._owe_updates(agent, steps)
        loop._make_due_updates(agent, 100, callbacks)
        owed += steps * 0.75
        if owed >= 4:
            expected.append(int(owed))
            owed -= int(owed)
    assert made == expected
    assert loop.owed_updates == owed


@states("critic", r"""
\begin{aligned}
Q(s, a) &= \sum_i p_i(s, a) z_i, \quad z_i = v_{\min} + i \frac{v_{\max} - v_{\min}}{n - 1}, \quad \Delta =
    z_1 - z_0 \\
t_i(y) &= \max(0, 1 - |\text{clip}(y) - z_i| / \Delta) \quad \text{(two-hot: target_spread = 0)} \\
t_i(y) &\propto \exp \left( -\frac{(\text{clip}(y) - z_i)^2}{2 (\text{target_spread} \cdot \Delta)^2} \right)
    \quad \text{(Gaussian)} \\
L &= -\frac{1}{B} \sum \sum_i t_i(y) \log p_i(s, a)
\end{aligned}
""")  # fmt: skip
@pytest.mark.parametrize("spread", [0.0, 0.75])
def test_critic(spread, session, rng):
    from ddpg.networks.critic import CategoricalCritic

    n, low, high = 5, -2.0, 6.0
    z = low + np.arange(n) * (high - low) / (n - 1)
    critic = object.__new__(CategoricalCritic)
    critic._spread, critic.values = spread, np.float32(z)
    logits, y = rng.normal(size=(4, n)).astype(np.float32), np.float32([[-9.0], [0.5], [6.0], [3.3]])
    prediction = critic._predict(tf.constant(logits))
    found_q, found = session.run([prediction.q, critic._cross_entropy(prediction.output, tf.constant(y))])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    distance = np.clip(y, low, high) - z
    if spread:
        t = np.exp(-(distance**2) / (2 * (spread * (z[1] - z[0])) ** 2))
        t /= t.sum(axis=1, keepdims=True)
    else:
        t = np.maximum(0, 1 - np.abs(distance) / (z[1] - z[0]))
    np.testing.assert_allclose(found_q, p @ z[:, None], rtol=1e-5)
    assert found == pytest.approx(-np.mean(np.sum(t * np.log(p), axis=1)), rel=1e-5)


@states("actor_average", r"""
\bar\theta \leftarrow \bar\theta + (\theta - \bar\theta) / h \quad \text{after each of the actor's steps} \qquad
\text{predict}(s) = \mu(s; \bar\theta) \qquad \text{exploring: } \mu(s; \theta) + \text{noise}
""")  # fmt: skip
def test_actor_average(session):
    """tests/algorithms/test_averaged_actor.py tests which policy acts when."""
    from ddpg.networks.base import EMATarget

    theta = v1.get_variable("theta", initializer=[1.0, -2.0], use_resource=True)
    average = EMATarget([theta], 1 / 8, name="average")
    update = average.update()
    session.run(v1.global_variables_initializer())
    expected = np.array([1.0, -2.0])
    np.testing.assert_array_equal(session.run(average.variables[0]), expected)
    for value in ([2.0, 0.0], [-1.0, 4.0]):
        theta.load(value, session)
        session.run(update)
        expected = expected + (np.array(value) - expected) / 8
        np.testing.assert_allclose(session.run(average.variables[0]), expected, rtol=1e-6)


@states("weight_projection", r"""
w_i \leftarrow \frac{w_i}{\max(\lVert w_i \rVert_2,\; 10^{-12})} \quad
    \text{for the weights } w_i \text{ into each unit } i \text{ of each hidden layer}
""")  # fmt: skip
def test_weight_projection(session, rng):
    """tests/networks/test_weight_projection.py tests for which networks and when."""
    weights = rng.normal(size=(3, 4)).astype(np.float32)
    weights[:, 1] = 0
    kernel = v1.get_variable("kernel", initializer=weights, use_resource=True)
    bias = v1.get_variable("bias", initializer=np.float32([1, 2]), use_resource=True)
    projected = projected_after(tf.no_op(), unit_weights([kernel, bias]))
    session.run(v1.global_variables_initializer())
    session.run(projected)
    expected = weights / np.maximum(np.linalg.norm(weights, axis=0), 1e-12)
    np.testing.assert_allclose(session.run(kernel), expected, rtol=1e-6)
    np.testing.assert_array_equal(session.run(bias), [1, 2])


@states("affine_projection", r"""
(\gamma, \beta) \leftarrow \sqrt{d}\, \frac{(\gamma, \beta)}{\max(\lVert (\gamma, \beta) \rVert_2,\; 10^{-12})}
    \quad \text{for the gains } \gamma \text{ and offsets } \beta \text{ of each norm of } d \text{ features}, \quad
\lVert (\gamma, \beta) \rVert_2^2 = \sum_{i=1}^d \gamma_i^2 + \beta_i^2
""")  # fmt: skip
@pytest.mark.parametrize("d", [1, 2, 7])
def test_affine_projection(d, session, rng):
    """tests/networks/test_affine_projection.py tests for which networks and when."""
    gamma, beta = rng.normal(size=(2, d)).astype(np.float32)
    starts = {"gamma": gamma, "beta": beta, "alone": gamma}
    *pair, alone = (v1.get_variable(name, initializer=start, use_resource=True) for name, start in starts.items())
    with observing() as built:
        note_affine(*pair)
        note_affine(alone)
    projected = projected_after(tf.no_op(), built.norms)
    session.run(v1.global_variables_initializer())
    session.run(projected)
    length = max(np.sqrt(np.sum(gamma**2 + beta**2)), 1e-12)
    np.testing.assert_allclose(session.run(pair), np.sqrt(d) * np.array([gamma, beta]) / length, rtol=1e-6)
    expected = np.sqrt(d) * gamma / np.sqrt(np.sum(gamma**2))
    np.testing.assert_allclose(session.run(alone), expected, rtol=1e-6)


@states("noise", r"""
\text{gaussian: } x_t = \sigma N(0, 1) \qquad
\text{repeated: } x_t = \dots = x_{t+n-1} = \sigma N(0, 1),\; P(n) \propto n^{-2},\; n = 1, \dots, 16 \qquad
\text{pink: } x_t = \sigma \sum_k a_k \cos(2 \pi k t / 1000 + \varphi_k),\; E[a_k^2] \propto 1/k \qquad
\text{Ornstein-Uhlenbeck: } x \leftarrow x - \theta x \, dt + \sigma \sqrt{dt} \, N(0, 1)
""")  # fmt: skip
def test_noise():
    """tests/policies/test_noise.py tests the distributions."""
    from ddpg.policies.noise import GaussianNoise, OrnsteinUhlenbeckNoise

    numbers = np.random.default_rng(3).standard_normal((5, 1, 2), np.float32)
    white, drifting = GaussianNoise(0.2, (1, 2)), OrnsteinUhlenbeckNoise(0.2, (1, 2), 0.15, 0.5)
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    x = np.zeros((1, 2))
    for number in numbers:
        np.testing.assert_allclose(white.sample(one), 0.2 * number, rtol=1e-6)
        x = x - 0.15 * x * 0.5 + 0.2 * np.sqrt(0.5) * number
        np.testing.assert_allclose(drifting.sample(other), x, rtol=1e-5)
