"""What holds for every reward: sums, weights, names, channels, pickling, and clear errors."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_episodes import HEIGHT, WIDTH, answer, episode, look, region, task

from codev_env.errors import ConfigError
from codev_env.rewards import REWARDS, Channel, GroupTerm, Reward, Term, change, get_reward
from codev_env.types import Answer, Code, Episode, Execution, Invalid, Region, Step, StepScore, Task

MINE = Reward("mine", (Term("turns", lambda episode: -0.01 * len(episode.steps)),))
NOT_A_REWARD = 3
NAMES = {
    "outcome",
    "tapo",
    "tapo-released",
    "codevision",
    "codevision-paper",
    "deepeyes",
    "pixelreasoner",
    "pixelreasoner-released",
    "taco",
    "hdpo",
}

problems = st.sampled_from([(), ("unbalanced tags",)])
boxes = st.tuples(
    st.integers(0, WIDTH // 2), st.integers(0, HEIGHT // 2), st.integers(WIDTH // 2 + 1, WIDTH), st.just(HEIGHT)
)
regions = st.one_of(
    st.just(Region()),
    st.builds(
        region,
        boxes,
        st.sampled_from([None, "rot0", "rot90", "rot180", "flip_h", "transpose"]),
        st.sampled_from([0.5, 1.0, 3.0]),
        st.sampled_from([0.2, 0.6, 1.0]),
    ),
)


@st.composite
def code_steps(draw: st.DrawFn) -> Step:
    shown = draw(st.lists(regions, max_size=3))
    step = look(*shown, value=draw(st.one_of(st.none(), st.floats(-1, 1))))
    probed = draw(st.one_of(st.none(), st.tuples(st.booleans(), st.booleans())))
    return dataclasses.replace(step, turn=Code("x", draw(problems)), probed=probed)


steps = st.lists(st.one_of(code_steps(), st.builds(lambda p: Step("", Invalid("why", p)), problems)), max_size=8)
tasks = st.sampled_from(
    [task(), task("rotate_90"), task("crop", "flip_horizontal", targets=[(10, 10, 30, 30), (60, 40, 80, 60)])]
)


def play(reward: Reward, what: Task, taken: list[Step], answered: bool, correct: bool) -> tuple[Episode, dict]:
    """Play as an environment does: value after each turn, the change is paid."""
    played, paid, total = Episode(what), {}, {}
    last = Step("", Answer("red") if answered else Invalid("why"))
    for step in [*taken, last]:
        played.steps.append(step)
        if step is last:
            played.is_correct = correct and answered
            played.stop_reason = "answer" if answered else "max_turns"
        value = reward.value(played)
        for name, amount in change(paid, value).items():
            total[name] = total.get(name, 0.0) + amount
        paid = value
    return played, total


def test_the_table_is_complete() -> None:
    assert set(REWARDS) == NAMES
    for name, reward in REWARDS.items():
        assert reward.name == name and reward.source
        assert ("group" in reward.needs) == bool(reward.group_terms)


@pytest.mark.parametrize("name", sorted(NAMES))
@given(what=tasks, taken=steps, answered=st.booleans(), correct=st.booleans())
def test_step_rewards_add_up_to_the_trajectory_reward(
    name: str, what: Task, taken: list[Step], answered: bool, correct: bool
) -> None:
    reward = get_reward(name)
    played, total = play(reward, what, taken, answered, correct)
    end = reward.value(played)
    assert total.keys() == end.keys() == set(reward.names)
    assert all(abs(total[key] - end[key]) <= 1e-12 for key in end)
    assert all(end[term.name] == 0.0 for term in reward.group_terms)


@pytest.mark.parametrize("name", sorted(NAMES))
@given(what=tasks, taken=steps)
def test_code_text_and_printed_text_are_never_read(name: str, what: Task, taken: list[Step]) -> None:
    """Comments, descriptions and prints that name every operation change nothing."""
    reward = get_reward(name)
    loud = "# rotate_90 rotate_270 flip crop enhance: image.rotate(90).crop(target)"
    louder = [
        dataclasses.replace(
            step, action=loud, turn=Code(loud, step.turn.problems), execution=Execution(loud, step.execution.images)
        )
        if isinstance(step.turn, Code) and step.execution
        else step
        for step in taken
    ]
    plain, _ = play(reward, what, taken, True, True)
    shouted, _ = play(reward, what, louder, True, True)
    assert reward.value(plain) == reward.value(shouted)
    assert reward.group_value([plain]) == reward.group_value([shouted])


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_reward_survives_pickling_and_says_why(name: str) -> None:
    reward = pickle.loads(pickle.dumps(get_reward(name)))
    played = episode(task(targets=[(0, 0, 9, 9)]), look(region((0, 0, 9, 9)), value=0.75), answer())
    assert reward == REWARDS[name] and reward.value(played) == REWARDS[name].value(played)
    for term in reward.terms:
        assert term.why is not None and term.why(played)


def test_weights_and_own_rewards() -> None:
    reward = get_reward("tapo", {"tool": 2.0})
    assert {term.name: term.weight for term in reward.terms} == {"outcome": 1.0, "format": 0.3, "tool": 2.0}
    assert get_reward("tapo").terms[2].weight == 0.5
    assert get_reward("pixelreasoner", {"curiosity": 0.1}).group_terms[0].weight == 0.1
    assert get_reward(MINE) is MINE
    assert get_reward(f"{__name__}:MINE").name == "mine"


def test_channels_and_their_weights() -> None:
    assert get_reward("tapo").channel_weights == (1.0,), "normalising takes the scale of a single channel away"
    taco = get_reward("taco", {"gain": -0.3})
    assert [channel.name for channel in taco.channels] == ["outcome", "gain"]
    assert taco.channel_weights == (1.0, 0.3)
    hdpo = get_reward("hdpo")
    assert [(c.name, c.only_correct) for c in hdpo.channels] == [("outcome", False), ("efficiency", True)]
    assert hdpo.channel_weights == (1.0, 0.15)


def test_the_gate_of_a_reward_is_a_channel_that_counts() -> None:
    assert get_reward("taco").gate_channels == (0, 1)
    assert get_reward("taco", {"gain": 0}).gate_channels is None, "it would gate everything out"
    assert get_reward("hdpo").gate_channels is None
    for gate in ("gains", "outcome"):
        with pytest.raises(ConfigError, match=f"gate of reward 'taco': '{gate}'"):
            dataclasses.replace(get_reward("taco"), gate=gate)


@pytest.mark.parametrize(
    ("reward", "weights", "message"),
    [
        ("tapoo", None, "Did you mean 'tapo'"),
        ("tapo", {"tol": 1.0}, "Did you mean 'tool'"),
        ("tapo", {"tool": float("nan")}, "finite"),
        ("no_such_module:x", None, "module:attribute"),
        (f"{__name__}:NOT_A_REWARD", None, "int"),
        (3, None, "int"),
    ],
)
def test_what_cannot_be_used_says_why(reward: object, weights: dict[str, float] | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_reward(reward, weights)  # type: ignore[arg-type]


X = Term("x", lambda episode: 0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Reward("bad", ()), "at least one"),
        (lambda: Reward("bad", (X, X)), "different names"),
        (lambda: Reward("bad", (X,), (GroupTerm("x", lambda e: []),)), "different names"),
        (lambda: Reward("bad", (X,), tool_terms=("y",)), "tool term"),
        (lambda: Reward("bad", (X,), needs=("box",)), "Did you mean 'boxes'"),  # type: ignore[arg-type]
        (
            lambda: Reward("bad", (X, Term("y", len, channel=Channel("outcome", True)))),  # type: ignore[arg-type]
            "one name must mean one channel",
        ),
    ],
)
def test_a_reward_that_makes_no_sense_is_refused(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda episode: float("inf"), "'x' of reward 'bad' gave inf; it must be finite"),
        (lambda episode: "1", "gave a str"),
        (lambda episode: 1 / 0, "'x' of reward 'bad' raised ZeroDivisionError"),
    ],
)
def test_a_term_that_fails_is_named(fn, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Reward("bad", (Term("x", fn),)).value(Episode(task()))


@pytest.mark.parametrize(
    ("fn", "message"), [(lambda episodes: [0.0], "1 values for 2"), (lambda episodes: [0.0, None], "a NoneType")]
)
def test_a_group_term_that_fails_is_named(fn, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Reward("bad", (X,), (GroupTerm("g", fn),)).group_value([Episode(task())] * 2)


def test_a_failed_judge_pays_nothing_and_is_seen() -> None:
    step = dataclasses.replace(look(region()), score=StepScore(None, "no judge", failed=True))
    played = episode(task(), step, answer())
    assert played.judge_failed and get_reward("tapo").value(played)["tool"] == 0.0
