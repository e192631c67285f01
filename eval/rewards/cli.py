"""`codev rewards`: list the rewards, explain those of an episode, and try to cheat them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from codev_env.app.arguments import parse, run_subcommand
from codev_env.errors import ConfigError, TrajectoryError, unknown
from codev_env.rewards import OUTCOME, REWARDS, GroupTerm, Reward, Term, get_reward
from codev_env.rewards.reward import about
from codev_env.trajectory import FILE_NAME, Trajectory, read_trajectories
from codev_eval.bench.replay import TurnReward, episode_of, matches, turn_rewards
from codev_eval.rewards.looks import Looks, looks, looks_notes, record_of_look, text_of_look
from codev_eval.rewards.options import ExplainCommand, ListCommand

COMMANDS = {
    "list": "list the rewards by name, with terms, weights, needs and sources",
    "explain": "explain the reward of an episode, or another one, term by term",
    "redteam": "play cheating agents against the rewards",
    "bound": "judge blind programs and experts at every size of target",
}
PARTS = ("after", "before")
"""Folders of a training run that hold trajectories, in the order of search."""


def main(argv: Sequence[str]) -> int:
    """Run `codev rewards COMMAND` and return its exit code."""
    return run_subcommand("codev rewards", COMMANDS, argv, _run)


def _run(name: str, words: list[str]) -> int:
    if name == "redteam":
        from codev_eval.rewards.redteam import main as redteam

        return redteam(words)
    if name == "bound":
        from codev_eval.rewards.bound import main as bound

        return bound(words)
    if name == "list":
        return run_list(parse(ListCommand, words, "codev rewards list"))
    return run_explain(parse(ExplainCommand, words, "codev rewards explain"))


def run_list(command: ListCommand) -> int:
    """Print the table of rewards."""
    if command.json:
        print(json.dumps([_row(reward) for reward in REWARDS.values()], indent=2))
        return 0
    for reward in REWARDS.values():
        needs = f"needs {', '.join(reward.needs)}" if reward.needs else "needs nothing"
        print(f"{reward.name}: {'robust, ' if reward.robust else ''}{needs}; {reward.source}")
        print(f"    {formula(reward)}")
        if reward.gate:
            print(f"    routed: a turn with a call gets of the outcome only the sign of [{reward.gate}]")
        if reward.second_hand:
            print(f"    second-hand: {', '.join(reward.second_hand)}")
    print("\n(g): paid by the trainer, which knows the group.  [c]: in a channel c of its own, see docs/rewards.md.")
    print("robust: claims that no cheat earns more for tools than an honest look at a wrong place; check it with")
    print("`codev rewards redteam`.")
    print(
        "second-hand: terms whose formula or weight comes from descriptions by others, not from the paper or its code."
    )
    return 0


def run_explain(command: ExplainCommand) -> int:
    """Explain the chosen episodes."""
    records = []
    for trajectory in choose(command):
        reward = _reward(command, trajectory)
        rows = turn_rewards(reward, episode_of(trajectory))
        notes = _notes(command, reward, trajectory, rows) + looks_notes(trajectory)
        found = looks(trajectory)
        if command.json:
            records.append(_record(reward, trajectory, rows, notes, found))
        else:
            _print(reward, trajectory, rows, notes, found)
    if command.json:
        print(json.dumps(records, indent=2))
    return 0


def choose(command: ExplainCommand) -> list[Trajectory]:
    """Return the episodes to explain.

    Raises:
        TrajectoryError: There are no trajectories at the path.
        ConfigError: None of them is the one that is asked for.
    """
    path = command.path
    if path.is_dir() and not (path / FILE_NAME).is_file():
        path = next((path / part for part in PARTS if (path / part / FILE_NAME).is_file()), path)
    found = read_trajectories(path)
    if not found:
        raise TrajectoryError(f"{path} holds no episodes.")
    if command.index is None and command.task is None:
        return found[:1]
    chosen = [t for t in found if command.index in (None, t.index) and command.task in (None, t.task_id)]
    if chosen:
        return chosen
    if command.task is not None:
        raise unknown("--task", command.task, {t.task_id for t in found})
    known = sorted({t.index for t in found})
    raise ConfigError(f"--index is {command.index}, which {path} does not hold; it holds {known[0]} to {known[-1]}.")


def _reward(command: ExplainCommand, trajectory: Trajectory) -> Reward:
    name = command.reward or trajectory.reward_name
    if name not in REWARDS and ":" not in name and command.reward is None:
        raise ConfigError(
            f"episode {trajectory.task_id!r} records the reward {name!r}, which is not one of this package. "
            "Name it with --reward, as module:attribute."
        )
    return get_reward(name, command.weights)


def formula(reward: Reward) -> str:
    """Write a reward as a sum, for example `outcome + 0.3 format + 0.5 tool`."""
    text = ""
    for term in reward.all_terms:
        sign = "-" if term.weight < 0 else "+"
        text += f" {sign} " if text else sign.replace("+", "")
        text += _label(term) if abs(term.weight) == 1 else f"{abs(term.weight):g} {_label(term)}"
    return text


def _label(term: Term | GroupTerm) -> str:
    mark = "(g)" if isinstance(term, GroupTerm) else ""
    return term.name + mark + (f"[{term.channel.name}]" if term.channel != OUTCOME else "")


def _notes(command: ExplainCommand, reward: Reward, trajectory: Trajectory, rows: Sequence[TurnReward]) -> list[str]:
    """Notes for the reader: whether the recorded rewards are the same, and which terms could not be computed."""
    notes = []
    same = matches(reward, trajectory, list(rows))
    if reward.name != trajectory.reward_name:
        recorded = f"{trajectory.reward_name!r} paid {trajectory.total_reward:+.3f}"
        notes.append(f"These are the rewards of {reward.name!r}; the recorded {recorded}.")
    elif same:
        notes.append("These are the recorded rewards, turn by turn.")
    else:
        notes.append(
            f"WARNING: the recorded rewards differ (in all {trajectory.total_reward:+.3f}). Was it played with other "
            "weights (give --weights), or by another version?"
        )
    if reward.group_terms:
        names = ", ".join(term.name for term in reward.group_terms)
        notes.append(f"{names}: needs all rollouts of the task; paid by the trainer, 0 here.")
        recorded_terms = trajectory.reward_terms
        paid = {t.name: recorded_terms[t.name] for t in reward.group_terms if recorded_terms.get(t.name)}
        if same and paid:
            notes.append(f"The trainer paid {', '.join(f'{n} {v:+.3f}' for n, v in paid.items())} on the last turn.")
    if "probing" in reward.needs and all(turn.probed is None for turn in trajectory.turns):
        notes.append("It needs the policy's answer to be probed before and after each turn; it was not, so 0 here.")
    if any(turn.judge_failed for turn in trajectory.turns):
        notes.append("The judge failed on some turn: this episode is left out of training.")
    return notes


def _print(
    reward: Reward, trajectory: Trajectory, rows: Sequence[TurnReward], notes: Sequence[str], found: Looks
) -> None:
    width = max(map(len, reward.names))
    played = f", played by {trajectory.agent}" if trajectory.agent else ""
    print(f"Episode {trajectory.task_id} (index {trajectory.index}){played}")
    print(f"{reward.name} = {formula(reward)}   {f'({reward.source})' if reward.source else ''}".rstrip())
    for term in reward.all_terms:
        print(f"  {term.name:<{width}}  {about(term)}".rstrip())
    for number, (turn, row, shown) in enumerate(zip(trajectory.turns, rows, found, strict=True), 1):
        print(f"\nTurn {number}, {turn.kind}: {row.total:+.3f}")
        for name, paid in row.terms.items():
            print(f"  {name:<{width}}  {paid:+.3f}  now {row.values[name]:+.3f}  {row.why.get(name, '')}".rstrip())
        for place, image in enumerate(shown, 1):
            print(f"  image {place}: {text_of_look(image)}")
    print(f"\nTotal {sum(row.total for row in rows):+.3f}")
    print("\n".join(notes) + "\n")


def _record(
    reward: Reward, trajectory: Trajectory, rows: Sequence[TurnReward], notes: Sequence[str], found: Looks
) -> dict[str, Any]:
    turns = [
        {
            "kind": turn.kind,
            "reward": row.total,
            "paid": row.terms,
            "values": row.values,
            "why": row.why,
            "images": [record_of_look(image) for image in shown],
        }
        for turn, row, shown in zip(trajectory.turns, rows, found, strict=True)
    ]
    return {
        "task_id": trajectory.task_id,
        "index": trajectory.index,
        "reward": reward.name,
        "weights": {term.name: term.weight for term in reward.all_terms},
        "recorded_reward": trajectory.reward_name,
        "recorded_total": trajectory.total_reward,
        "same_as_recorded": matches(reward, trajectory, list(rows)),
        "total": sum(row.total for row in rows),
        "turns": turns,
        "notes": list(notes),
    }


def _row(reward: Reward) -> dict[str, Any]:
    return {
        "name": reward.name,
        "terms": [
            {
                "name": term.name,
                "weight": term.weight,
                "channel": term.channel.name,
                "group": isinstance(term, GroupTerm),
                "tool": term.name in reward.tool_terms,
                "second_hand": term.name in reward.second_hand,
                "formula": about(term),
            }
            for term in reward.all_terms
        ],
        "needs": list(reward.needs),
        "robust": reward.robust,
        "gate": reward.gate,
        "source": reward.source,
    }
