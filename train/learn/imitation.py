r"""Self-imitation of looks: faithful tool calls, and right answers to what they showed, are learned again.

The policy gradient rewards a right answer, wherever it came from. Beside it, an update here imitates, from its own
rollouts, the turns that a policy needs to answer from what it sees. For a rollout with a faithful tool call:

    p = probability of the gold answer, given the trajectory up to the answering turn, with another place of the image,
        of the same size, in each image that a tool returned
    v = the judge's best score of its faithful calls, 0 to 1;  v̄ = its mean over the judged rollouts of the task

The probability is a geometric mean over the answer's tokens, read off one forward pass: nothing is sampled. From the
rollouts of the update are drawn, without replacement,

    answers   with chances ∝ 1 - p where that exceeds 0.05:  loss  -Σ log π(token of the answering turn, gold)
    calls     with chances ∝ (1.05 - v̄) v²:                  loss  -Σ log π(token of each faithful call)

so it imitates answers that follow from nothing but the tool output, and looks that show much, the more so if the other
rollouts of the task do not look there.

A place that the policy never crops leaves nothing to imitate. Of the tasks of this update in which no rollout looked
faithfully, `targets` are drawn, and in place of their first turn the call that crops the task's first box is imitated,
as the expert of the cold start writes it.

Sources: self-imitation learning (arXiv 1806.05635) and rejection-sampled fine-tuning (arXiv 2308.01825) learn from
one's own successes; here success is a faithful look, and the chances are those of a counterfactual image. That an
expert's turns are learned beside the policy gradient where one's own fail is as in LUFFY (arXiv 2504.14945).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image

from codev_agents.rollout.player import Rollout
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock
from codev_agents.scripted import expand_box
from codev_agents.writing import crop_turn
from codev_env.dialects import Dialect
from codev_env.errors import ConfigError
from codev_env.geometry import grow_box, image_of
from codev_env.types import Answer, Box
from codev_train.learn.sample import Sample
from codev_train.learn.update import Updater
from codev_train.run.options import ImitationOptions
from codev_train.run.ranks import part_of, summed

_TRIES = 16
_MARK = "0"
_LEAST = 0.05
_MARGIN = 0.25


@dataclass(frozen=True, eq=False)
class _Look:
    """A rollout that looked faithfully before it answered.

    Attributes:
        gold: The trajectory with the gold answer in its answering turn; the loss covers nothing of it yet.
        calls: Numbers of its faithful tool calls.
        answer: Number of the answering turn.
        answers: Chance, not normalised, that its answer is imitated.
        looks: The same for its calls.
    """

    gold: Sample
    calls: tuple[int, ...]
    answer: int
    answers: float
    looks: float


@dataclass(frozen=True, eq=False)
class Imitation:
    """Chooses the turns of rollouts that are imitated.

    Attributes:
        options: How many.
        updater: Scores answers.
        processor: The tokenizer side of the policy.
        dialect: How the policy talks.
    """

    options: ImitationOptions
    updater: Updater
    processor: ChatProcessor
    dialect: Dialect

    def samples(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> tuple[list[Sample], dict[str, float]]:
        """Draw the samples to imitate.

        All processes call this together; each draws from its own rollouts.

        Args:
            rollouts: The rollouts of this update.
            rng: Draws other places, and the samples.

        Returns:
            Samples with `is_imitated`, and statistics over all processes.
        """
        if not (self.options.answers or self.options.calls or self.options.targets):
            return [], {}
        looks, sums = self._look(rollouts, rng)
        accelerator = self.updater.accelerator
        noise = rng.gumbel(size=len(looks))
        read = _draw([look.answers for look in looks], part_of(self.options.answers, accelerator), noise)
        called = _draw([look.looks for look in looks], part_of(self.options.calls, accelerator), noise)
        samples = []
        for number in sorted(read | called):
            look = looks[number]
            turns = (*look.calls * (number in called), *(look.answer,) * (number in read))
            samples.append(_of_turns(look.gold, turns, self.options.weight))
        shown = self._shown_targets(rollouts, rng)
        samples += shown
        counts = {"looks": len(looks), "answers": len(read), "calls": len(called), "targets": len(shown)}
        own = {**counts, "imitated": float(len(samples)), **sums}
        total = dict(zip(own, summed(list(own.values()), accelerator), strict=True))
        stats = {f"imitation/{name}": total[name] for name in counts} | {"imitated": total["imitated"]}
        return samples, stats | {f"imitation/{name}": total[name] / total["looks"] for name in sums if total["looks"]}

    def _look(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> tuple[list[_Look], dict[str, float]]:
        """Find the faithful looks, one for each task and place; add up their p (`elsewhere`) if answers are drawn."""
        chosen: dict[object, tuple[Rollout, Sample]] = {}
        for rollout in rollouts:
            boxes = [turn.crop_boxes for turn in rollout.trajectory.turns]
            key = rollout.group, tuple(tuple((image_of(box), box) for box in shown) for shown in boxes)
            if looked(rollout) and key not in chosen and (gold := self._with_gold(rollout)):
                chosen[key] = rollout, gold
        blind = np.ones(len(chosen))
        if self.options.answers:
            asked = [self._question(rollout, self._elsewhere(rollout, rng)) for rollout, _ in chosen.values()]
            filler = min(rollouts, key=lambda rollout: len(rollout.tokens))
            blind = np.exp(self.updater.score(asked, self._question(filler, filler.tokens.images, 0)))
        groups: dict[int, list[float]] = {}
        for rollout in rollouts:
            if not rollout.judge_failed:
                groups.setdefault(rollout.group, []).append(_shown(rollout))
        looks = []
        for (rollout, gold), p in zip(chosen.values(), blind, strict=True):
            turns = rollout.trajectory.turns
            calls = tuple(number for number, turn in enumerate(turns) if turn.faithful and turn.kind == "code")
            rare = 1.05 - float(np.mean(groups[rollout.group]))
            answers = 1 - float(p) if p < 1 - _LEAST else 0.0
            looks.append(_Look(gold, calls, len(turns) - 1, answers, rare * _shown(rollout) ** 2))
        return looks, {"elsewhere": float(blind.sum())} if self.options.answers else {}

    def _shown_targets(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> list[Sample]:
        """Draw tasks in which no rollout looked faithfully; each with the call that crops its target."""
        if not self.options.targets:
            return []
        missed = {rollout.group: (rollout, call) for rollout in rollouts if (call := self._call_on_target(rollout))}
        for rollout in rollouts:
            if rollout.judge_failed or any(turn.faithful for turn in rollout.trajectory.turns):
                missed.pop(rollout.group, None)
        order = rng.permutation(sorted(missed))[: part_of(self.options.targets, self.updater.accelerator)]
        return [self._opened_by(*missed[group]) for group in order]

    def _call_on_target(self, rollout: Rollout) -> str:
        """The turn that crops a task's first target; empty without one, or where the dialect cannot crop its image."""
        trajectory, snap = rollout.trajectory, self.options.snap
        if not trajectory.targets:
            return ""
        target = trajectory.targets[0]
        on = image_of(target)
        size = trajectory.size_of(on) or (0, 0)
        # A grid that the box is widened to is margin enough.
        box = expand_box(target, size, 0.0 if snap else _MARGIN, snap or None)
        box = grow_box(box, size, self.dialect.least_side)
        try:
            return crop_turn(self.dialect, box, on)
        except ConfigError:
            return ""

    def _opened_by(self, rollout: Rollout, action: str) -> Sample:
        """The opening of a rollout's episode, with an action in place of its first turn."""
        trajectory = rollout.trajectory
        before = rollout.tokens.ids[: rollout.tokens.turns.index(0)]
        reply = self.processor.encode_reply(action, before)
        ended = [self.processor.eos_id] if trajectory.observation_role == "user" else []
        turns = [-1] * len(before) + [0] * (len(reply) + len(ended))
        ids = [*before, *reply, *ended]
        images = rollout.tokens.images[: len(trajectory.images)]
        return _of_turns(Sample.unlearned(ids, images, turns), (0,), self.options.weight)

    def _with_gold(self, rollout: Rollout) -> Sample | None:
        """The trajectory with the gold answer in its answering turn; `None` if it is empty or cannot be put there."""
        tokens, trajectory = rollout.tokens, rollout.trajectory
        ids, turns = list(tokens.ids), list(tokens.turns)
        if not self.processor.encode(trajectory.answer):
            return None
        if not trajectory.is_correct:
            action = self._corrected(trajectory.turns[-1].action, trajectory.final_answer or "", trajectory.answer)
            if not action:
                return None
            start = turns.index(len(trajectory.turns) - 1)
            ended = [self.processor.eos_id] if ids[-1] in self.processor.end_ids else []
            new = [*self.processor.encode_reply(action, ids[:start]), *ended]
            ids, turns = [*ids[:start], *new], [*turns[:start], *[len(trajectory.turns) - 1] * len(new)]
        return Sample.unlearned(ids, tokens.images, turns)

    def _corrected(self, action: str, given: str, gold: str) -> str:
        """The turn with `gold` as its answer in place of `given`; empty if it cannot be put there."""
        place = action.rfind(given) if given else -1
        while place >= 0:  # the answer's letters may also be those of a tag
            changed = action[:place] + gold + action[place + len(given) :]
            turn = self.dialect.parse(changed)
            if isinstance(turn, Answer) and turn.text.strip() == gold.strip():
                return changed
            place = action.rfind(given, 0, place + len(given) - 1)
        return ""

    def _question(self, rollout: Rollout, images: Sequence[PixelBlock], turn: int = -1) -> Sample:
        """The gold answer in place of a turn, the last one by default; the loss covers the answer alone."""
        tokens, trajectory = rollout.tokens, rollout.trajectory
        before = tokens.ids[: tokens.turns.index(turn % len(trajectory.turns))]
        opening = self.dialect.write(Answer(_MARK)).partition(_MARK)[0]
        ids = [*before, *self.processor.encode_reply(opening, before)]
        answer = self.processor.encode(trajectory.answer)
        turns = [-1] * len(ids) + [0] * len(answer)
        ids += answer
        ends = np.cumsum([image.tokens for image in images])
        shown = int((ends <= before.count(self.processor.image_id)).sum())
        return Sample(ids, images[:shown], turns, [0.0] * len(ids), [one == 0 for one in turns], torch.ones(1))

    def _elsewhere(self, rollout: Rollout, rng: np.random.Generator) -> list[PixelBlock]:
        """The images of a rollout, with another place of the same size in each that a tool returned."""
        trajectory = rollout.trajectory
        images = list(rollout.tokens.images)
        place = len(trajectory.images)
        sources = [image.convert("RGB") for image in trajectory.images]
        for turn in trajectory.turns[:-1]:
            for image, box in zip(turn.images, turn.crop_boxes, strict=True):
                on = image_of(box)
                source = sources[on if on < len(sources) else 0]  # frames that were not shown: a shown one is elsewhere
                other = source.crop(elsewhere(source.size, box, rng)).resize(image.size, Image.Resampling.BILINEAR)
                images[place] = self.processor.image(other)
                place += 1
        return images


def looked(rollout: Rollout) -> bool:
    """Whether a rollout has a faithful tool call and answers after it."""
    turns = rollout.trajectory.turns
    return not rollout.judge_failed and turns[-1].kind == "answer" and any(turn.faithful for turn in turns[:-1])


def elsewhere(size: tuple[int, int], box: Box | None, rng: np.random.Generator) -> Box:
    """Draw a box as large as another that overlaps it as little as possible, of a few at random.

    Args:
        size: (width, height) of the image.
        box: The other box; `None` stands for one of a sixteenth of the image at an unknown place.
        rng: Draws.
    """
    width, height = size
    x1, y1, x2, y2 = box or (0, 0, width // 4, height // 4)
    w, h = min(width, max(1, x2 - x1)), min(height, max(1, y2 - y1))
    left, top = rng.integers(0, width - w + 1, _TRIES), rng.integers(0, height - h + 1, _TRIES)
    shared = np.clip(w - np.abs(left - x1), 0, None) * np.clip(h - np.abs(top - y1), 0, None) * (box is not None)
    best = int(shared.argmin())
    x, y = int(left[best]), int(top[best])
    return x, y, x + w, y + h


def _shown(rollout: Rollout) -> float:
    """The best score of a rollout's faithful calls, 0 to 1; 0 without any."""
    return max((turn.score_value or 0.0 for turn in rollout.trajectory.turns if turn.faithful), default=0.0)


def _draw(chances: Sequence[float], count: int, noise: np.ndarray) -> set[int]:
    """Draw without replacement, with these chances; all of them if there are fewer.

    The largest log(chance) + Gumbel noise are such a draw (arXiv 1903.06059). Draws with the same noise overlap as far
    as their chances do, so one forward pass serves both.
    """
    with np.errstate(divide="ignore"):
        keys = np.log(chances) + noise
    order = np.argsort(-keys, kind="stable")[:count]
    return {int(number) for number in order if np.isfinite(keys[number])}


def _of_turns(gold: Sample, turns: Sequence[int], weight: float) -> Sample:
    """A sample that imitates some turns of a trajectory."""
    mask = [turn in turns for turn in gold.turns]
    return replace(gold, mask=mask, advantages=torch.full_like(gold.advantages, weight), is_imitated=True)
