"""The terms that rewards are made of: small pure functions of the episode so far."""

from __future__ import annotations

from codev_env.types import Answer, Code, Episode, Invalid, Region, Step

STEMS = 0.5
"""Least share of an image's pixels that must stem from a task's image for the image to count as a view of it."""
SHOWN_IMAGES = 3
"""Images of an episode that `tool_level` looks at."""
FREE_OPERATIONS = 1
"""Calls that `overuse` does not charge for."""
LINE = 100
"""Characters of a parser's reason that `why_format` repeats."""


def outcome(episode: Episode) -> float:
    """1 if the answer is right, else 0.

    Source: `acc` of CodeV (arXiv 2511.19661), with the exact scorer of the task instead of a judge.
    """
    return float(episode.is_correct)


def settled(episode: Episode) -> float:
    """1 if the answer is right and the last call before it did not fail, else 0.

    Source: the released Pixel-Reasoner (experience_maker.py) takes the reward of a right answer away if the last visual
    operation failed and no other one followed.
    """
    last = next((step.execution for step in reversed(_code_steps(episode))), None)
    return float(episode.is_correct and (last is None or last.error is None))


def well_formed(episode: Episode) -> float:
    """1 while every turn is well formed, else 0; an episode that ends without an answer ends with 0.

    A turn is not well formed if it could not be parsed or if its dialect lists problems: unbalanced tags, code after
    the answer, several answers or code blocks. 0 before the first turn.

    Source: `format` of the released CodeV reward.
    """
    return float(bool(episode.steps) and not _flaw(episode))


def format_error(episode: Episode) -> float:
    """1 once a turn is not well formed or the episode ended without an answer, else 0.

    Source: the format term of DeepEyes (arXiv 2505.14362): unbalanced tags, or no answer.
    """
    return float(bool(_flaw(episode)))


def tool_mean(episode: Episode) -> float:
    """The mean score of the tool calls so far: sum of r_t over the judged code turns / their number, 0 without any.

    Those with nothing to judge (score `None`) do not count.

    Source: the tool term of TAPO (arXiv 2511.19661): the mean of step scores r_t over the tool steps.
    """
    scores = _scores(episode)
    return sum(scores) / len(scores) if scores else 0.0


def tool_level(episode: Episode) -> float:
    """The best score of the calls that gave the first 3 images, rounded to quarters, at least 0.25; 0 without an image.

    Source: the tool term of the released CodeV code, where a judge sees at most 3 images of a trajectory and says 1 for
    the right region on some image, 0.75 for part of it, 0.25 for none, and 0 where no image was made. Here the judge
    scores every call, and the best of these scores replaces its verdict.
    """
    best, shown = 0.0, 0
    for step in _code_steps(episode):
        images = len(step.execution.images) if step.execution else 0
        if not images or step.score is None or step.score.value is None:
            continue
        if shown < SHOWN_IMAGES:
            # Half quarters go up: 0.125 -> 0.25, 0.375 -> 0.5.
            best = max(best, 0.25, min(1.0, int(4 * max(step.score.value, 0.0) + 0.5) / 4))
        shown += images
    return best


def seen_and_correct(episode: Episode) -> float:
    """1 if the answer is right and some call returned an image that shows the original (half of its pixels), else 0.

    Source: the tool term of DeepEyes (arXiv 2505.14362), whose only tool cuts regions out of the original; it asks no
    more than that an image was returned.
    """
    return float(episode.is_correct and has_seen(episode))


def overuse(episode: Episode) -> float:
    """The number of calls beyond the first: max(n - N, 0), N = 1.

    Source: the efficiency constraint of Pixel-Reasoner (arXiv 2505.15966), -min(N - n_vo(y), 0).
    """
    return float(max(calls(episode) - FREE_OPERATIONS, 0))


def gain(episode: Episode) -> float:
    """The sum over turns of (answer right after it) - (answer right before it), where the policy was probed.

    Source: the differential answer probe of TACO (arXiv 2606.30251).
    """
    return float(sum(step.probed[1] - step.probed[0] for step in episode.steps if step.probed is not None))


def efficiency(episode: Episode) -> float:
    """1 / (T + 1) for T calls if the answer is right, else 0.

    Source: the tool reward of HDPO (arXiv 2604.08545), verl_tool/workers/reward_manager/metis.py of the released code.
    """
    return 1.0 / (calls(episode) + 1) if episode.is_correct else 0.0


def calls(episode: Episode) -> int:
    """Return the number of code turns."""
    return len(_code_steps(episode))


def is_view(region: Region) -> bool:
    """Whether an image has a known place in one of the task's images, and half of its pixels stem from there."""
    return region.polygon is not None and region.box is not None and region.original_share + region.repeated >= STEMS


def has_seen(episode: Episode) -> bool:
    """Whether some call returned a view of one of the task's images."""
    return any(is_view(region) for step in _code_steps(episode) for region in step.regions)


def written(episode: Episode) -> str:
    """Return all that the model wrote, turn by turn; an end tag at which generation stopped is put back."""
    return "\n".join(_whole(step) for step in episode.steps)


def _whole(step: Step) -> str:
    for tag, kind in (("answer", Answer), ("code", Code)):
        start, end = f"<{tag}>", f"</{tag}>"
        stopped = step.action.count(start) == step.action.count(end) + 1 and not step.action.rstrip().endswith(end)
        if isinstance(step.turn, kind) and stopped:
            return f"{step.action}{end}"
    return step.action


def why_outcome(episode: Episode) -> str:
    """Say what was answered."""
    if episode.answer is None:
        return f"no answer ({episode.stop_reason})" if episode.done else "no answer yet"
    return f"answered {episode.answer!r}, wanted {episode.task.answer!r}"


def why_format(episode: Episode) -> str:
    """Say what the first flaw is."""
    return _flaw(episode) or "no flaw"


def why_tool(episode: Episode) -> str:
    """Say how the judge scored the last call."""
    step = next((step for step in reversed(_code_steps(episode))), None)
    if step is None:
        return "no tool call"
    if step.score is None or step.score.value is None:
        return f"not judged: {step.score.why if step.score else 'no score'}"
    return f"last call {step.score.value:+.2f}: {step.score.why}"


def why_calls(episode: Episode) -> str:
    """Say how many calls there were and whether one of them showed the original."""
    return f"calls: {calls(episode)}, {'a' if has_seen(episode) else 'no'} view of the original"


def why_gain(episode: Episode) -> str:
    """Say how many turns were probed."""
    probed = [step.probed for step in episode.steps if step.probed is not None]
    gained, lost = sum(a > b for b, a in probed), sum(a < b for b, a in probed)
    return f"{len(probed)} turns probed, {gained} gained the answer, {lost} lost it"


def _code_steps(episode: Episode) -> list[Step]:
    return [step for step in episode.steps if isinstance(step.turn, Code)]


def _scores(episode: Episode) -> list[float]:
    return [s.score.value for s in _code_steps(episode) if s.score is not None and s.score.value is not None]


def _flaw(episode: Episode) -> str:
    """The first flaw of format; empty where there is none."""
    for number, step in enumerate(episode.steps, 1):
        if isinstance(step.turn, Invalid):
            reason = " ".join(step.turn.reason.split()) or "cannot be read"
            return f"turn {number}: {reason[:LINE]}"
        if step.turn.problems:
            return f"turn {number}: {', '.join(step.turn.problems)}"
    return f"no answer ({episode.stop_reason})" if episode.stop_reason not in ("", "answer") else ""
