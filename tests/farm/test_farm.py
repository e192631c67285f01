"""The farm with nodes in this process: equal to local environments, and what happens when nodes are lost."""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from local_cluster import LocalCluster

from codev_agents import SCRIPTED, run_episode
from codev_env.envs.pool import make_limits, shared_sandbox
from codev_env.envs.vector import FarmVectorEnv
from codev_env.errors import ConfigError, EpisodeLost, FarmError, JudgeError, SandboxError
from codev_env.farm import farm as farms
from codev_env.farm.messages import Open, digest_of, pack, unpack
from codev_env.farm.options import make_options
from codev_env.farm.programs import LocalPrograms
from codev_env.judges.options import JudgeStats
from codev_env.types import StepScore

ARGS: dict[str, Any] = {"data": "synthetic", "scenes": "toy", "max_turns": 4}
ID = "codev_env:CodeV-VStar-v0"
LOOK = "<code>show(image.crop((10, 20, 90, 120)))</code>"
ACTIONS = [
    "<answer>A</answer>",
    LOOK,
    "<code>image.crop((0, 0, 64, 64)).save('a.png')\nprint('a.png')</code>",
    "<code>show(Image.open('a.png').rotate(90))</code>",
    "<code>show(image)</code>",
    "<code>show(np.random.randint(0, 256, (40, 50, 3)).astype('uint8'))</code>",
    "<code>print(1 / 0)</code>",
    "nothing",
]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    made = LocalCluster(2)
    yield made
    made.specs = {}  # for farms that are still open, which would start others
    for node in made.nodes.values():
        node.killed.set()
        node.work.close()


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farms, "_LOOK_S", 0.05)
    monkeypatch.setattr(farms, "_BACK_S", (0.1, 0.2))


def wait_for(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("did not happen")


class Liker:
    """Scores by what it is given: history, probes and regions."""

    name = "liker"

    def score(self, task: Any, step: Any, history: Any) -> StepScore:
        kinds = [one.kind for one in history]
        values = [one.score.value for one in history if one.score]
        shown = [region.box for region in step.regions]
        return StepScore(
            len(history) / 8, f"{task.task_id} {kinds} {values} {shown} {task.images[0].size}", bool(shown)
        )


class Waiter(Liker):
    """The same behind a server."""

    name = "waiter"

    def ping(self) -> str:
        return "there"


class Counting(Liker):
    """Counts its calls, and refuses the fourth, wherever the others were made."""

    name = "counting"

    def __init__(self) -> None:
        self.here, self.there = JudgeStats(), JudgeStats()

    def score(self, task: Any, step: Any, history: Any) -> StepScore:
        if self.stats().calls == 3:
            raise JudgeError("the budget is used up")
        self.here.calls += 1
        return super().score(task, step, history)

    def stats(self) -> JudgeStats:
        return self.here + self.there

    def count(self, stats: JudgeStats) -> None:
        self.there += stats

    def __deepcopy__(self, memo: Any) -> Counting:
        return self


class Broken(Liker):
    name = "broken"

    def score(self, task: Any, step: Any, history: Any) -> StepScore:
        raise TimeoutError("no reply")


COMBINATIONS = [
    ("codev", "tapo", "auto"),
    ("codev", "outcome", "none"),
    ("thyme", "tapo-released", "ground_truth"),
    ("deepeyes", "deepeyes", "auto"),
    ("pyvision", "tapo", "noisy:0.5"),
    ("codevision", "codevision", "auto"),
    ("codev", "taco", Liker()),
    ("codev", "tapo", Waiter()),
]


def actions_of(dialect: str) -> list[str]:
    from codev_env.dialects import get_dialect
    from codev_env.types import Answer, Code

    speaker = get_dialect(dialect)
    if dialect == "codev":
        return ACTIONS
    codes = ["show(image.crop((10, 20, 90, 120)))", "print(1 / 0)", "x = 3\nprint(x)"]
    codes = [] if dialect in ("deepeyes", "codevision") else codes  # these have a tool for crops
    turns = [Answer("A"), *map(Code, codes), speaker.crop((5, 5, 80, 80)), speaker.crop((20, 5, 90, 60))]
    return [*(speaker.write(turn) for turn in turns), "nothing"]


@pytest.mark.parametrize(
    ("dialect", "reward", "judge", "mode"),
    [
        (*one, AutoresetMode.SAME_STEP if number == 0 else AutoresetMode.NEXT_STEP)
        for number, one in enumerate(COMBINATIONS)
    ],
)
def test_equal_to_the_local_vector_environment_step_by_step(
    cluster: LocalCluster, dialect: str, reward: str, judge: Any, mode: AutoresetMode
) -> None:
    farm = cluster.farm()
    args = {**ARGS, "dialect": dialect, "reward": reward, "judge": judge, "autoreset_mode": mode}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, local = gym.make_vec(ID, 3, farm=farm, **args), gym.make_vec(ID, 3, **args)
        assert isinstance(ours, FarmVectorEnv)
        assert data_equivalence(ours.reset(seed=3), local.reset(seed=3), exact=True)
        rng = np.random.default_rng(0)
        for _ in range(8):
            actions = tuple(rng.choice(actions_of(dialect), 3).tolist())
            assert data_equivalence(ours.step(actions), local.step(actions), exact=True)
            for mine, theirs in zip(ours.call("episode"), local.call("episode"), strict=True):
                assert [step.score for step in mine.steps] == [step.score for step in theirs.steps]
    assert ours.restarts.tolist() == [0, 0, 0]
    ours.close()
    local.close()


def test_steps_travel_in_batches_and_images_once(cluster: LocalCluster) -> None:
    cluster.specs.pop("node-1")
    envs = gym.make_vec(ID, 4, farm=cluster.farm(in_flight=8), **ARGS)
    envs.reset(options={"index": 1})
    envs.step((LOOK,) * 4)
    envs.reset(options={"index": 1})
    envs.step((LOOK,) * 4)
    node = cluster.nodes["node-0"]
    assert sorted(node.programs(), reverse=True)[:2] == [4, 4]
    assert node.pixels() == 1
    opens = [r for batch in node.batches for r in batch if isinstance(r, Open)]
    assert len(opens) == 8 and sum(bool(r.setup_bytes) for r in opens) == 1
    assert all(pickle.loads(r.task).images == () for r in opens)


def test_an_image_that_the_driver_has_does_not_travel_back(cluster: LocalCluster) -> None:
    env = gym.make(ID, farm=cluster.farm(), **ARGS).unwrapped
    env.reset(options={"index": 0})
    found = []
    receive = type(env._programs)._image
    env._programs._image = lambda image: found.append(image) or receive(env._programs, image)
    env.step("<code>show(image)</code>")
    env.step(LOOK)
    env.step(LOOK)
    assert [isinstance(image, str) for image in found] == [True, False, True]
    steps = env.episode.steps
    assert steps[0].execution.images[0].tobytes() == env.task.image.tobytes()
    assert steps[1].execution.images[0].tobytes() == steps[2].execution.images[0].tobytes()


def test_an_image_that_the_node_threw_out_is_sent_again(cluster: LocalCluster) -> None:
    cluster.specs.pop("node-1")
    env = gym.make(ID, farm=cluster.farm(images_mb=1), **{**ARGS, "scenes": "vstar"}).unwrapped
    for index in (0, 1, 0):
        env.reset(options={"index": index})
        observation, *_ = env.step(LOOK)
        assert len(observation["images"]) == 1
    assert cluster.nodes["node-0"].pixels() >= 3


def test_back_pressure_bounds_what_a_node_has(cluster: LocalCluster) -> None:
    cluster.specs.pop("node-1")
    envs = gym.make_vec(ID, 12, farm=cluster.farm(in_flight=1), **ARGS)
    envs.reset(seed=0)
    observation, *_ = envs.step((LOOK,) * 12)
    assert all(len(images) == 1 for images in observation["images"])
    assert cluster.nodes["node-0"].most_under_way <= 2


def test_a_judge_error_ends_the_episodes_of_the_batch_as_it_does_here(cluster: LocalCluster) -> None:
    envs = gym.make_vec(ID, 2, farm=cluster.farm(), judge=Broken(), **ARGS)
    envs.reset(seed=0)
    with pytest.raises(JudgeError, match=r"broken.*no reply.*node-"):
        envs.step((LOOK, "nothing"))
    with pytest.raises(gym.error.ResetNeeded):
        envs.step((LOOK, "nothing"))
    envs.reset(seed=0)
    envs.step(("nothing", "nothing"))


@pytest.mark.parametrize("how", ["dies", "hangs", "is removed"])
def test_episodes_of_a_lost_node_start_again_and_rewards_still_add_up(cluster: LocalCluster, how: str) -> None:
    farm = cluster.farm()
    envs = gym.make_vec(ID, 4, farm=farm, autoreset_mode="Disabled", **ARGS)
    first, infos = envs.reset(seed=1)
    total = np.zeros(4)
    observation, reward, *_ = envs.step((LOOK,) * 4)
    total += reward
    on_it = np.array([env._programs._link.spec.name == "node-0" for env in envs.envs])
    assert on_it.any() and not on_it.all()
    node = cluster.nodes["node-0"]
    {"dies": node.kill, "hangs": node.frozen.set, "is removed": lambda: cluster.remove("node-0")}[how]()
    observation, reward, ended, cut, again = envs.step((LOOK,) * 4)
    total += reward
    assert envs.restarts.tolist() == on_it.astype(int).tolist()
    assert not ended.any() and not cut.any()
    assert again["turn"].tolist() == [0 if lost else 2 for lost in on_it]
    assert again["task_id"].tolist() == infos["task_id"].tolist()
    assert total[on_it].tolist() == [0.0] * on_it.sum()
    for i in np.flatnonzero(on_it):
        assert observation["text"][i] == first["text"][i]
        terms = {name: values[i] for name, values in again["reward_terms"].items() if not name.startswith("_")}
        assert sum(terms.values()) == pytest.approx(reward[i])
    observation, reward, ended, *_ = envs.step(("<answer>A</answer>",) * 4)
    total += reward
    assert ended.all()
    for i, env in enumerate(envs.envs):
        assert total[i] == pytest.approx(sum(env.reward.value(env.episode).values()))
    numbers = farm.metrics()
    assert numbers["farm/nodes_lost"] == 1 and numbers["farm/episodes_restarted"] == on_it.sum()


def test_judges_of_all_nodes_share_their_counters_and_budgets(cluster: LocalCluster) -> None:
    judge, farm = Counting(), cluster.farm()
    envs = [gym.make(ID, farm=farm, judge=judge, **ARGS) for _ in range(4)]
    for number, env in enumerate(envs):
        env.reset()
        if number < 3:
            env.step(LOOK)
            assert judge.stats().calls == number + 1 and judge.here.calls == 0
    with pytest.raises(JudgeError, match="used up"):
        env.step(LOOK)
    assert [sum(node.programs()) for node in cluster.nodes.values()] == [2, 2]


def test_a_node_lost_under_the_first_program_costs_nothing(cluster: LocalCluster) -> None:
    farm = cluster.farm()
    local = gym.make_vec(ID, 4, autoreset_mode="Disabled", **ARGS)
    envs = gym.make_vec(ID, 4, farm=farm, autoreset_mode="Disabled", **ARGS)
    for either in (envs, local):
        either.reset(seed=1)
        either.step(("nothing",) * 4)
    cluster.nodes["node-0"].die_at = 1
    assert data_equivalence(envs.step((LOOK,) * 4), local.step((LOOK,) * 4), exact=True)
    assert envs.restarts.sum() == 0 and farm.metrics()["farm/programs_moved"] >= 1


def test_a_single_environment_says_that_it_has_to_be_reset(cluster: LocalCluster) -> None:
    cluster.specs.pop("node-1")
    env = gym.make(ID, farm=cluster.farm(), **ARGS)
    env.reset(seed=0)
    env.step(LOOK)
    cluster.nodes["node-0"].kill()
    with pytest.raises(EpisodeLost, match="reset the environment"):
        env.step(LOOK)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(LOOK)
    wait_for(lambda: not cluster.nodes["node-0"].killed.is_set())  # it comes back
    env.reset(seed=0)
    assert len(env.step(LOOK)[0]["images"]) == 1


def test_an_episode_is_recorded_once_however_often_it_starts(cluster: LocalCluster) -> None:
    env, local = gym.make(ID, farm=cluster.farm(), **ARGS), gym.make(ID, **ARGS)

    class Killer(type(SCRIPTED["oracle"]())):  # type: ignore[misc]
        kills = 2

        def act(self, observation: Any) -> str:
            if len(env.unwrapped.episode.steps) == 1 and self.kills:
                self.kills -= 1
                cluster.nodes[env.unwrapped._programs._link.spec.name].kill()
                return LOOK
            return super().act(observation)

    agent = Killer()
    found = run_episode(env, agent, options={"index": 2})
    assert agent.kills == 0
    expected = run_episode(local, SCRIPTED["oracle"](), options={"index": 2})
    assert [turn.reward for turn in found.turns] == [turn.reward for turn in expected.turns]
    assert [turn.crop_boxes for turn in found.turns] == [turn.crop_boxes for turn in expected.turns]


def test_a_program_that_ends_every_node_ends_its_episode_with_an_error(cluster: LocalCluster) -> None:
    farm = cluster.farm()
    start = cluster.start

    def deadly(key: str, spec: Any) -> Any:
        node = start(key, spec)
        node.die_at = 1
        return node

    cluster.start = deadly  # type: ignore[method-assign]
    for node in cluster.nodes.values():
        node.die_at = 1
    env = gym.make(ID, farm=farm, **ARGS)
    env.reset(seed=0)
    with pytest.raises(FarmError, match=r"4 nodes were lost while they ran the first program"):
        env.step(LOOK)


class Travels(Liker):
    """Cannot be read on a node."""

    def __reduce__(self) -> Any:
        return __import__, ("not_installed_there",)

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Unpicklable(Liker):
    name = "unpicklable"

    def score(self, task: Any, step: Any, history: Any) -> StepScore:
        return StepScore(0.5, lambda: "why")  # type: ignore[arg-type]


def test_what_cannot_travel_ends_one_episode_and_no_node(cluster: LocalCluster) -> None:
    farm = cluster.farm()
    with pytest.raises(ConfigError, match="judge 'liker' cannot be pickled"):
        gym.make(ID, farm=farm, judge=type("Local", (Liker,), {})(), **ARGS)
    env = gym.make(ID, farm=farm, judge=Travels(), **ARGS)
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=r"not_installed_there.*has to be installed.*on node"):
        env.step(LOOK)
    env = gym.make(ID, farm=farm, judge=Unpicklable(), **ARGS)
    env.reset(seed=0)
    with pytest.raises(JudgeError, match="unpicklable"):
        env.step(LOOK)
    env = gym.make(ID, farm=farm, **ARGS)
    task = env.unwrapped.tasks[0]
    with pytest.raises(ConfigError, match=f"task '{task.task_id}' cannot be pickled"):
        farm.open(env.unwrapped._setup, replace(task, meta={"lock": threading.Lock()}))
    with pytest.raises(FarmError, match="PicklingError|pickle"):
        farm.call(make_limits(None), give_lock)
    assert farm.call(make_limits(None), describe) == cluster.nodes["node-0"].work.hello().layers
    assert farm.metrics()["farm/nodes_lost"] == 0 and farm.slots == 4


def give_lock(box: Any) -> Any:
    return threading.Lock()


def describe(box: Any) -> Any:
    return box.describe()


def test_a_node_that_is_added_takes_episodes(cluster: LocalCluster) -> None:
    farm = cluster.farm()
    cluster.add("node-9", slots=8)
    wait_for(lambda: farm.slots == 12)
    envs = gym.make_vec(ID, 8, farm=farm, **ARGS)
    envs.reset(seed=0)
    envs.step((LOOK,) * 8)
    assert sum(cluster.nodes["node-9"].programs()) >= 4


def test_nodes_of_another_version_or_without_layers_are_refused(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.reports["node-1"] = {"version": "0.0.9"}
    with pytest.raises(ConfigError, match=r"node-1 has codev_env 0\.0\.9.*install the same version"):
        cluster.farm()
    cluster.reports["node-1"] = {"source": "f00"}
    with pytest.raises(ConfigError, match=r"source f00"):
        cluster.farm()
    cluster.reports["node-1"] = {"layers": {"process": "on", "rlimits": "off: no"}}
    with pytest.raises(SandboxError, match=r"node-1.*rlimits off: no.*allow_weaker"):
        cluster.farm()
    assert cluster.farm(allow_weaker=True).slots == 4
    cluster.reports["node-1"] = {"refused": "the sandbox lacks Landlock."}
    with pytest.raises(SandboxError, match=r"lacks Landlock"):
        cluster.farm()
    cluster.reports = {"late": {"layers": {}}}
    farm = cluster.farm()
    cluster.add("late")
    wait_for(lambda: "late" in farm._refused)
    assert set(farm.describe()) == {"node-0", "node-1"}
    assert "node late is left out" in capsys.readouterr().err


def test_a_node_whose_sandbox_fails_is_started_again(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = cluster.farm()
    first = cluster.nodes["node-0"]

    def fail(*_: Any) -> Any:
        raise SandboxError("no memory for a process")

    monkeypatch.setattr(first.work, "_box", fail)
    envs = gym.make_vec(ID, 8, farm=farm, **ARGS)
    envs.reset(seed=0)
    observation, *_ = envs.step((LOOK,) * 8)
    assert all(len(images) == 1 for images in observation["images"])
    assert envs.restarts.sum() == 0
    assert first.killed.is_set() and farm.metrics()["farm/node_failures"] >= 3
    wait_for(lambda: cluster.nodes["node-0"] is not first and farm.slots == 4)


def test_without_any_node_episodes_wait_and_then_say_so(cluster: LocalCluster) -> None:
    farm = cluster.farm(wait_s=0.3)
    env = gym.make(ID, farm=farm, **ARGS)
    cluster.remove("node-0")
    cluster.remove("node-1")
    wait_for(lambda: farm.slots == 0)
    with pytest.raises(FarmError, match=r"no node for 0\.3 s"):
        env.reset(seed=0)
    cluster.add("new")
    wait_for(lambda: farm.slots == 2)
    env.reset(seed=0)
    env.step(LOOK)


def test_metrics_have_queues_failures_and_idle_shares(cluster: LocalCluster) -> None:
    farm = cluster.farm()
    farm.metrics()
    numbers = farm.metrics()
    assert numbers["farm/nodes"] == 2 and numbers["farm/queue"] == numbers["farm/in_flight"] == 0
    assert {"farm/idle_share/node-0", "farm/idle_share/node-1"} <= numbers.keys()
    assert all(0 <= value <= 1 for name, value in numbers.items() if "idle_share" in name)
    assert farms.farm_metrics() == {}


def test_closing_a_farm_ends_what_is_under_way(cluster: LocalCluster) -> None:
    farm = cluster.farm()
    env = gym.make(ID, farm=farm, **ARGS)
    env.reset(seed=0)
    env.step(LOOK)
    farm.close()
    with pytest.raises(FarmError):
        env.step(LOOK)
    with pytest.raises(FarmError, match="closed"):
        env.reset(seed=0)


def test_packed_images_are_the_same_images() -> None:
    from PIL import Image

    for mode in ("RGB", "L", "RGBA", "P", "CMYK"):
        image = Image.effect_noise((31, 17), 60).convert("RGB").convert(mode)
        again = unpack(pack(image))
        assert (again.mode, again.size, again.tobytes()) == (image.mode, image.size, image.tobytes())
        assert again.convert("RGB").tobytes() == image.convert("RGB").tobytes()
        assert digest_of(again) == digest_of(image)
    assert digest_of(Image.new("L", (4, 2))) != digest_of(Image.new("L", (2, 4)))


@pytest.mark.parametrize(
    ("farm", "message"),
    [
        ("rya", "is no farm"),
        ({"adress": "ray"}, "Did you mean 'address'"),
        ({"share": 0}, "share is 0"),
        ({"patience_s": "long"}, "patience_s is 'long'"),
        ({"patience_s": 1}, "more than twice beat_s"),
        ({"allow_weaker": 1}, "True or False"),
        ({"address": 3}, "address is 3"),
        ('{"address": "ray"', "not JSON"),
        (7, "farm is a int"),
    ],
)
def test_options_that_cannot_be_used_are_named(farm: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gym.make(ID, farm=farm, **ARGS)


def test_options_may_be_json() -> None:
    assert make_options('{"address": "ray://head:10001", "share": 4}').share == 4
    assert make_options("ray", share=3).share == 3


def test_a_sandbox_and_a_farm_exclude_each_other(cluster: LocalCluster) -> None:
    with pytest.raises(ConfigError, match="both sandbox and farm"):
        gym.make(ID, farm=cluster.farm(), sandbox=shared_sandbox(make_limits(None)), **ARGS)


def test_the_error_without_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'pip install "codev-env\[ray\]"'):
        gym.make_vec(ID, 2, farm="ray", **ARGS)


def failing(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, fails: Any) -> list[int]:
    """Let the sandbox of the only node fail at the programs whose number, from 1, `fails` accepts."""
    cluster.specs.pop("node-1")
    count, run = [0], LocalPrograms.run

    def sometimes(self: LocalPrograms, *given: Any) -> Any:
        count[0] += 1
        if fails(count[0]):
            raise SandboxError("no memory for a process")
        return run(self, *given)

    monkeypatch.setattr(LocalPrograms, "run", sometimes)
    return count


def test_failures_with_programs_that_run_between_them_do_not_add_up(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = failing(cluster, monkeypatch, lambda number: number % 3)  # two failures, a success, two failures, ...
    farm = cluster.farm()
    env = gym.make(ID, farm=farm, **ARGS)
    for index in range(3):
        env.reset(options={"index": index})
        assert len(env.step(LOOK)[0]["images"]) == 1
    numbers = farm.metrics()
    assert count == [9] and numbers["farm/node_failures"] == 6 and numbers["farm/nodes_lost"] == 0


def test_an_episode_that_moves_away_from_a_node_is_closed_there(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(cluster, monkeypatch, lambda number: number < 3)
    env = gym.make(ID, farm=cluster.farm(), **ARGS)
    env.reset(options={"index": 0})
    env.step(LOOK)
    work = cluster.nodes["node-0"].work
    assert len(work._episodes) == 1
    env.close()
    wait_for(lambda: not work._episodes)


def test_a_node_that_was_well_for_long_comes_back_at_once(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = cluster.farm()
    pauses = []
    for worked_s in (0.0, 0.0, 1.0):
        wait_for(lambda: "node-0" in farm._links)
        link = farm._links["node-0"]
        link.since = time.monotonic() - worked_s
        link.lose("told to")
        pauses.append(farm._back["node-0"][1])
    assert pauses == [0.1, 0.2, 0.1]


def test_the_idle_share_of_a_node_that_started_again_is_of_its_new_process(cluster: LocalCluster) -> None:
    cluster.specs.pop("node-1")
    farm = cluster.farm()
    old = farm._links["node-0"]
    old.busy_s = 100.0
    farm.metrics()
    old.lose("told to")
    wait_for(lambda: farm._links.get("node-0", old) is not old)
    new = farm._links["node-0"]
    new.since = time.monotonic() - 10
    farm._seen = (time.monotonic() - 10, farm._seen[1])
    new.busy_s = 10.0  # of 20 s on two cores
    assert farm.metrics()["farm/idle_share/node-0"] == pytest.approx(0.5, abs=0.1)
