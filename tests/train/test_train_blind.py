"""Tasks that the policy can answer without looking are played last."""

from __future__ import annotations

import pytest
from micro_run import history
from test_train_rollout import ProbedEngine

from codev_agents.rollout.runner import RolloutRunner
from codev_env.app.cli import main
from codev_train.learn.blind import least_guessable
from codev_train.run.environments import make_env


def test_tasks_whose_guess_is_wrong_go_first_in_the_order_they_were_drawn():
    drawn: list[int] = []

    def choose(count: int) -> range:
        drawn.append(count)
        return range(10, 10 + count)

    def guesses(tasks):
        return [task not in (11, 14) for task in tasks]

    assert least_guessable(choose, guesses, factor=3, share=1.0, count=2) == [11, 14]
    assert least_guessable(choose, guesses, factor=2, share=1.0, count=3) == [11, 14, 10]
    assert least_guessable(choose, guesses, factor=1, share=1.0, count=3) == [11, 10, 12]
    assert drawn == [6, 0, 6, 0, 3, 0]


def test_a_share_of_the_tasks_is_played_as_drawn():
    places = iter(range(100))

    def choose(count: int) -> list[int]:
        return [next(places) for _ in range(count)]

    chosen = least_guessable(choose, lambda tasks: [task % 2 == 0 for task in tasks], factor=4, share=0.5, count=4)
    assert chosen == [1, 3, 8, 9]


def test_the_guess_is_asked_for_before_anything_is_looked_at(policy, env_options):
    runner = RolloutRunner(lambda: make_env(env_options, "train"), policy.processor)
    try:
        tasks = runner._any_env().tasks
        engine = ProbedEngine(policy.processor, [], [[tasks[3].answer, "?" + tasks[4].answer, tasks[5].answer + "?))"]])
        assert runner.guesses(engine, [3, 4, 5], max_tokens=64) == [True, False, True]
    finally:
        runner.close()
    ((prompts, sampling),) = engine.probes
    assert [len(prompt.images) for prompt in prompts] == [1, 1, 1] and sampling.temperature == 0
    # It may not know how to end an answer here: what it says first counts, in as many tokens as the right answer has.
    opening = policy.processor.encode("<answer>")
    assert all(prompt.ids[-len(opening) :] == opening for prompt in prompts)
    assert sampling.max_tokens == max(len(policy.processor.encode(tasks[index].answer)) for index in (3, 4, 5))


@pytest.mark.parametrize("staleness", ["0", "1"])
def test_the_history_has_the_share_of_guesses_that_were_right(staleness, arguments, runs, monkeypatch):
    made: list[list[bool]] = []
    guesses = RolloutRunner.guesses

    def noted(self, *args, **options) -> list[bool]:
        made.append(guesses(self, *args, **options))
        made[-1][0] = True  # this policy knows nothing
        return made[-1]

    monkeypatch.setattr(RolloutRunner, "guesses", noted)
    name = f"guessed{staleness}"
    assert main(["train", *arguments(name, "--candidates", "2", "--steps", "2", "--staleness", staleness)]) == 0
    shares = [row["share/guessed"] for row in history(runs / name)]
    assert all(share is None or 0 < share <= 1 for share in shares)
    if staleness == "0":
        assert shares == [pytest.approx(sum(right) / len(right)) for right in made]
