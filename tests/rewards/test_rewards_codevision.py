"""CodeVision's formula, read off effects, against values computed by hand."""

from __future__ import annotations

import pytest
from PIL import ImageOps
from reward_episodes import ANSWERED, PICTURE, answer, episode, error, look, region, task, unknown_region

from codev_env.geometry import ImageBox, iou
from codev_env.rewards import get_reward
from codev_env.rewards.codevision import improve, needed_operations, operations, used_operations
from codev_env.types import Answer, Code, Episode, Invalid, Region, Step, Task

TARGET = (20, 20, 40, 40)
HALF = (20, 20, 40, 30)  # IoU with TARGET: 200 / 400
TURNED = task("rotate_90")
SMALL = task("crop", targets=[TARGET])
BOTH = task("crop", "rotate_90", targets=[TARGET])


def paid(played: Episode, name: str = "codevision") -> dict[str, float]:
    return get_reward(name).value(played)


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        (task(), set()),
        (task("rotate_90"), {"rotate_270"}),
        (task("flip_horizontal"), {"flip_horizontal"}),
        (task("rotate_90", "rotate_180"), {"rotate_90"}),
        (task("rotate_180", "rotate_180"), set()),
        (task("jpeg:3"), set()),
        (task("crop", "rotate_270"), {"crop", "rotate_90"}),
        # MVToolBench keeps the need for a crop beside what was done to the image.
        (task("rotate_270", transform=["crop", "rotate_270"]), {"crop", "rotate_90"}),
    ],
)
def test_what_a_task_needs(what: Task, wanted: set[str]) -> None:
    assert needed_operations(what) == wanted


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (region(), set()),
        (region(orientation="rot270"), {"rotate_270"}),
        (region(TARGET), {"crop"}),
        (region(TARGET, "flip_v"), {"crop", "flip_vertical"}),
        (region(orientation=None), set()),  # tilted by some other angle
        (region((0, 0, 100, 72)), set()),  # 90 % of the area is no crop
        (region((0, 0, 100, 71)), {"crop"}),
        (region(TARGET, share=0.4), set()),  # mostly drawn
        (unknown_region(), set()),
        (Region(polygon=None, box=None, how="probe"), set()),
    ],
)
def test_what_an_image_shows(shown: Region, wanted: set[str]) -> None:
    assert operations(shown, task()) == wanted


def test_undoing_the_turn_is_paid_in_full() -> None:
    played = episode(TURNED, look(region(orientation="rot270")), answer())
    assert used_operations(played) == {"rotate_270"}
    # acc 1 + 0.1 format + r_must 1/1 + r_exact 0.1
    assert paid(played) == {
        "outcome": 1.0,
        "format": 0.1,
        "must": 1.0,
        "exact": 0.1,
        "emerge": 0.0,
        "usage": 0.0,
        "spurious": 0.0,
    }


def test_the_wrong_turn_and_no_turn_are_not_paid() -> None:
    for steps in ([look(region(orientation="rot90"))], [look(region())], []):
        values = paid(episode(TURNED, *steps, answer()))
        assert (values["outcome"], values["must"], values["exact"], values["spurious"]) == (1.0, 0.0, 0.0, 0.0)


def test_a_turn_shown_on_the_way_is_not_exact() -> None:
    played = episode(TURNED, look(region(orientation="rot90")), look(region(orientation="rot270")), answer())
    values = paid(played)
    assert (values["must"], values["exact"]) == (1.0, 0.0)


def test_a_crop_is_paid_by_its_iou() -> None:
    values = paid(episode(SMALL, look(region(HALF)), answer()))
    assert (values["outcome"], values["must"], values["exact"], values["emerge"]) == (1.0, 0.5, 0.1, 0.0)


def test_turn_and_crop_share_r_must() -> None:
    # (1 turn + IoU 0.5) / 2
    values = paid(episode(BOTH, look(region(HALF, "rot270")), answer()))
    assert (values["must"], values["exact"]) == (0.75, 0.1)
    # Only the crop: (0 + 0.5) / 2; only the turn: (1 + 0) / 2.
    assert paid(episode(BOTH, look(region(HALF)), answer()))["must"] == 0.25
    assert paid(episode(BOTH, look(region(orientation="rot270")), answer()))["must"] == 0.5


def test_the_best_crop_counts_whatever_came_before() -> None:
    played = episode(SMALL, look(region((60, 40, 80, 60))), look(region(TARGET)), look(region(HALF)), answer())
    assert paid(played)["must"] == 1.0


def test_several_targets_share_the_iou() -> None:
    two = task("crop", targets=[TARGET, (60, 40, 80, 60)])
    # One is met, of the other nothing is seen: (1 + 0) / 2. Then both.
    assert paid(episode(two, look(region(TARGET)), answer()))["must"] == 0.5
    played = episode(two, look(region(TARGET)), look(region((60, 40, 80, 60))), answer())
    assert paid(played)["must"] == 1.0


def test_crops_of_other_images_do_not_meet_the_target() -> None:
    two = Task("t", (PICTURE, PICTURE), "?", "red", targets=(TARGET,), transform=("crop",))
    played = episode(two, look(region(TARGET, image_index=1)), answer())
    assert paid(played)["must"] == 0.0


def test_a_target_is_met_on_the_image_that_it_is_on() -> None:
    place = ImageBox(TARGET, 1)
    second = Task("t", (PICTURE, PICTURE), "?", "red", targets=(place,), transform=("crop",))
    assert paid(episode(second, look(region(TARGET)), answer()))["must"] == 0.0
    assert paid(episode(second, look(region(TARGET, image_index=1)), answer()))["must"] == 1.0
    both = Task("t", (PICTURE, PICTURE), "?", "red", targets=(TARGET, place), transform=("crop",))
    looks = look(region(TARGET, image_index=1)), look(region(TARGET))
    assert [paid(episode(both, *looks[:n], answer()))["must"] for n in (1, 2)] == [0.5, 1.0]


def test_a_crop_of_an_image_without_targets_is_no_first_try_to_improve_on() -> None:
    second = Task("t", (PICTURE, PICTURE), "?", "red", targets=(ImageBox(TARGET, 1),), transform=("crop",))
    played = episode(second, look(region(TARGET)), look(region(TARGET, image_index=1)), answer())
    assert improve(played) == 0.0


def test_a_right_answer_after_a_wrong_crop_is_worth_r_must() -> None:
    # IoU (20 x 2) / (400 + 400 - 40) = 0.0526 < 0.1: acc * r_must.
    miss = region((20, 38, 40, 58))
    assert paid(episode(SMALL, look(miss), answer()))["outcome"] == pytest.approx(40 / 760)
    assert paid(episode(SMALL, answer()))["outcome"] == 0.0
    # A turn that is right is enough: r_must 0.5.
    assert paid(episode(BOTH, look(region(orientation="rot270")), answer()))["outcome"] == 1.0
    # No gate where S has no crop.
    assert paid(episode(TURNED, answer()))["outcome"] == 1.0


def test_an_empty_s() -> None:
    values = paid(episode(task(), answer()))
    assert (values["must"], values["exact"]) == (0.0, 0.0), "there is nothing to agree on"
    # Two turns that nobody needed: -0.5 each.
    played = episode(task(), look(region(orientation="rot90"), region(orientation="flip_h")), answer())
    assert (paid(played)["spurious"], paid(played)["exact"]) == (-1.0, 0.0)
    # The same turn twice is one operation.
    played = episode(task(), look(region(orientation="rot90")), look(region(TARGET, "rot90")), answer())
    assert paid(played)["spurious"] == -0.5


def test_overuse_counts_calls_beyond_two() -> None:
    for count, charge in ((2, 0.0), (3, -0.5), (5, -1.5)):
        assert paid(episode(BOTH, *[look(region(TARGET))] * count, answer()))["usage"] == charge
    assert paid(episode(task(), *[error()] * 3, answer()))["usage"] == -0.5, "a failed call is a call"


@pytest.mark.parametrize(
    ("shown", "image", "emerges"),
    [
        (region(), PICTURE, False),
        (region(TARGET), PICTURE.crop(TARGET), False),  # a crop is a core operation, asked for or not
        (region(scale=2.0), PICTURE.resize((200, 160)), True),
        (region(), ImageOps.invert(PICTURE), True),
        (region(orientation="rot90"), PICTURE.rotate(90, expand=True), False),  # a turn is no merit
        (region(orientation="rot90"), ImageOps.invert(PICTURE).rotate(90, expand=True), True),
        (region(share=0.6), ImageOps.invert(PICTURE), False),  # drawn on: colours say nothing
    ],
)
def test_what_emerges(shown: Region, image, emerges: bool) -> None:
    played = episode(task(), look(shown, images=[image]), answer())
    assert paid(played)["emerge"] == 0.2 * emerges
    wrong = episode(task(), look(shown, images=[image]), answer(), correct=False)
    assert paid(wrong)["emerge"] == 0.0


@pytest.mark.parametrize(
    ("actions", "formed"),
    [
        (["<think>a</think><tool_call>{}</tool_call>", "<think>b</think><answer>red</answer>"], True),
        (["<think>a</think><answer>red</answer>\n"], True),
        (["<think>a</think><answer>red"], True),  # cut at the stop string
        (["<answer>red</answer>"], False),  # no leading <think>
        (["So: <think>a</think><answer>red</answer>"], False),
        (["<think>a<think>b</think><answer>red</answer>"], False),
        (["<think>a</think><answer>red</answer> Done."], False),  # the answer ends the text
        (["<think>a</think><answer>blue</answer><answer>red</answer>"], False),
        (["<think>a <answer>red</answer></think>"], False),
        (["<think>a</think>\\boxed{red}"], False),
        # The released check does not ask whether a call can be read.
        (["<think>a</think><tool_call>no JSON</tool_call>", "<think>b</think><answer>red</answer>"], True),
        # Nor how answers are nested.
        (["<think>a</think><answer>a<answer>red</answer>"], True),
        (["<think>a</think><answer>red</answer></answer>"], True),
        (["<think>a</think><answer>red</answer>."], False),
    ],
)
def test_format_is_that_of_the_released_code(actions: list[str], formed: bool) -> None:
    steps = [Step(action, Answer("red") if "answer>" in action else Code("x")) for action in actions]
    played = Episode(task(), steps, "red", True, "answer")
    assert paid(played)["format"] == 0.1 * formed


def test_format_holds_while_an_episode_runs() -> None:
    for action, formed in (("<think>a</think><tool_call>{}</tool_call>", True), ("<tool_call>{}</tool_call>", False)):
        assert paid(Episode(task(), [Step(action, Code("x"))]))["format"] == 0.1 * formed
    assert paid(Episode(task()))["format"] == 0.0


def test_a_crop_that_was_asked_for_does_not_emerge() -> None:
    played = episode(SMALL, look(region(TARGET), images=[PICTURE.crop(TARGET)]), answer())
    assert paid(played)["emerge"] == 0.0


def test_the_paper_pays_improvements() -> None:
    # IoU 0, then 0.5, then worse, then 1: improvements 0.5 + 0.5.
    played = episode(
        SMALL,
        look(region((60, 40, 80, 60))),
        look(region(HALF)),
        look(region((60, 40, 80, 60))),
        look(region(TARGET)),
        answer(),
    )
    assert paid(played, "codevision-paper")["improve"] == pytest.approx(0.1)
    assert paid(episode(SMALL, look(region(TARGET)), answer()), "codevision-paper")["improve"] == 0.0
    assert paid(episode(task(targets=[TARGET]), look(region(TARGET)), answer()), "codevision-paper")["improve"] == 0.0


def test_the_paper_pays_the_order() -> None:
    turn, crop, both = region(orientation="rot270"), region(TARGET), region(TARGET, "rot270")
    for shown, wanted in (
        ([turn, both], 0.1),
        ([both], 0.1),
        ([region(), turn, crop], 0.1),
        ([crop, both], 0.0),
        ([turn], 0.0),  # not the same set
        ([turn, both, region(orientation="flip_h")], 0.0),
    ):
        played = episode(BOTH, *(look(one) for one in shown), answer())
        assert paid(played, "codevision-paper")["order"] == wanted
    # One operation has no order.
    assert paid(episode(SMALL, look(crop), answer()), "codevision-paper")["order"] == 0.0


def test_the_paper_contains_the_released_terms() -> None:
    played = episode(BOTH, look(region(HALF, "rot270")), answer())
    released, paper = paid(played), paid(played, "codevision-paper")
    assert {name: paper[name] for name in released} == released
    assert set(paper) - set(released) == {"improve", "order", "necessity"}


def test_iou() -> None:
    assert iou(TARGET, TARGET) == 1.0
    assert iou(TARGET, HALF) == 0.5
    assert iou(TARGET, (40, 20, 60, 40)) == 0.0


@pytest.mark.parametrize(
    "text", ["<answer>", "</think><think></think>", "</think>" * 8 + "<think>" * 8, "<think></think><answer></answer>"]
)
def test_repeated_tags_are_read_in_linear_time(text: str) -> None:
    """In quadratic time this would take minutes."""
    many = f"<think></think>{text * (400_000 // len(text))}"
    for last in (Step(many, Invalid("no answer")), Step(f"{many}{ANSWERED}", Answer("red"))):
        assert paid(episode(BOTH, last))["format"] in (0.0, 0.1)
