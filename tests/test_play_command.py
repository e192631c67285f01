"""`codev play`: what a person writes becomes turns, and what they are paid is told."""

from __future__ import annotations

import contextlib
import io

import pytest
from PIL import Image

from codev_env.adapters.episodes import EpisodeRunner
from codev_env.app import cli


@pytest.fixture
def task():
    """The task that the tests play."""
    player = EpisodeRunner(data="synthetic", scenes="toy")
    player.reset(index=3)
    return player.base.task


def play(monkeypatch, capsys, tmp_path, text, *options):
    """Run the command with some standard input; returns its exit code and output."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    code = cli.main(["play", "--scenes", "toy", "--index", "3", "--out", str(tmp_path / "seen"), *options])
    return code, capsys.readouterr().out


def crop(task):
    x1, y1, x2, y2 = task.targets[0]
    return f"{x1 - 9} {y1 - 9} {x2 + 9} {y2 + 9}"


def test_a_look_and_an_answer_by_shortcut(monkeypatch, capsys, tmp_path, task):
    text = f"/crop {crop(task)}\n/answer {task.answer}\n"
    code, out = play(monkeypatch, capsys, tmp_path, text)
    assert code == 0
    assert "reward: +1.80 (outcome +1.00, format +0.30, tool +0.50)" in out
    assert "The answer is right" in out and "showed the evidence" in out
    x1, y1, x2, y2 = task.targets[0]
    assert Image.open(tmp_path / "seen" / "input.png").size == task.image.size
    assert Image.open(tmp_path / "seen" / "turn1_1.png").size == (x2 - x1 + 18, y2 - y1 + 18)
    assert "[image: " in out and "<image>" not in out


def test_a_turn_of_many_lines_ends_with_its_tag(monkeypatch, capsys, tmp_path, task):
    code = 'image.crop((0, 0, 40, 30)).save("a.png")\n\nprint("a.png")\nprint(6 * 7)'
    text = f"<think>so</think>\n<code>\n```python\n{code}\n```\n</code>\n<answer>{task.answer}</answer>\n"
    _, out = play(monkeypatch, capsys, tmp_path, text)
    assert "\n42\n" in out and Image.open(tmp_path / "seen" / "turn1_1.png").size == (40, 30)
    assert "turn reward: " in out and "The answer is right" in out


def test_a_line_with_a_dot_ends_a_turn(monkeypatch, capsys, tmp_path):
    _, out = play(monkeypatch, capsys, tmp_path, ".\nhello\n\nworld\n.\n")
    assert "Write the turn again" in out and out.count("turn reward:") == 1


def test_the_end_of_the_input_ends_politely(monkeypatch, capsys, tmp_path):
    code, out = play(monkeypatch, capsys, tmp_path, "")
    assert code == 0 and out.endswith("The episode was left before its end.\n")


def test_an_unfinished_last_line_is_still_a_turn(monkeypatch, capsys, tmp_path, task):
    _, out = play(monkeypatch, capsys, tmp_path, f"<answer>{task.answer}")
    assert "The answer is right" in out


def test_a_wrong_shortcut_costs_no_turn(monkeypatch, capsys, tmp_path, task):
    text = f"/crop 1 2\n/zoom\n/prompt\n/answer {task.answer}\n"
    _, out = play(monkeypatch, capsys, tmp_path, text)
    assert "four whole numbers" in out and "You answer questions about an image" in out
    assert out.count("turn reward:") == 1


@pytest.mark.parametrize("word", ["crop 0 0 50 50", "Crop 0, 0, 50, 50", "answer red", "prompt", "crop"])
def test_a_shortcut_without_its_slash_is_told_and_costs_no_turn(monkeypatch, capsys, tmp_path, task, word):
    _, out = play(monkeypatch, capsys, tmp_path, f"{word}\n/answer {task.answer}\n")
    assert f"Shortcuts begin with a slash: /{word.split()[0].lower()}" in out
    assert out.count("turn reward:") == 1 and "The answer is right" in out


def test_the_words_of_shortcuts_may_stand_inside_of_a_turn(monkeypatch, capsys, tmp_path, task):
    text = f"I think\ncrop 0 0 50 50\nanswer\n<answer>{task.answer}</answer>\n"
    _, out = play(monkeypatch, capsys, tmp_path, text)
    assert "slash" not in out and "The answer is right" in out
    _, out = play(monkeypatch, capsys, tmp_path, f"Answering this is hard.\n<answer>{task.answer}</answer>\n")
    assert "slash" not in out and "The answer is right" in out


def test_an_open_turn_is_told_how_to_end_at_a_terminal(monkeypatch, capsys, tmp_path):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("red\nblue\n.\n"))
    cli.main(["play", "--scenes", "toy", "--index", "3", "--out", str(tmp_path / "seen")])
    assert capsys.readouterr().out.count("a line that holds only a dot ends the turn") == 1


def test_other_dialects(monkeypatch, capsys, tmp_path, task):
    text = f"/crop {crop(task)}\n/answer {task.answer}\n"
    _, out = play(monkeypatch, capsys, tmp_path, text, "--dialect", "deepeyes")
    assert "<tool_response>" in out and "The answer is right" in out


@pytest.mark.parametrize(("option", "value"), [("--bench", "vsta"), ("--dialect", "kodev"), ("--index", "100000000")])
def test_a_wrong_option_is_explained(monkeypatch, capsys, tmp_path, option, value):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert cli.main(["play", "--scenes", "toy", "--out", str(tmp_path), option, value]) == 1
    assert value in capsys.readouterr().err


@pytest.mark.parametrize("word", ["help", "/help", "?", " Help "])
def test_help_is_no_turn(monkeypatch, capsys, tmp_path, word):
    _, out = play(monkeypatch, capsys, tmp_path, f"{word}\n")
    assert out.count("/crop X1 Y1 X2 Y2") == 2 and "turn reward" not in out


def test_a_wrong_answer_names_the_right_one(monkeypatch, capsys, tmp_path, task):
    _, out = play(monkeypatch, capsys, tmp_path, "/answer nothing of the kind\n")
    assert f"The answer is wrong; the right one is: {task.answer}." in out


def test_long_lines_break_between_words(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "40")
    _, out = play(monkeypatch, capsys, tmp_path, "<code>\n```python\nprint('several words ' * 20)\n```\n</code>\n")
    printed = [line for line in out.splitlines() if "several" in line]
    assert len(printed) > 5 and all(len(line) <= 40 and set(line.split()) == {"several", "words"} for line in printed)


def test_nothing_is_left_in_the_temporary_folder(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO("/crop 1 1 50 50\n"))
    assert cli.main(["play", "--scenes", "toy", "--index", "3"]) == 0
    assert "codev-play-" in capsys.readouterr().out and not list(tmp_path.glob("codev-play-*"))


def test_a_folder_is_played_into_again(monkeypatch, capsys, tmp_path, task):
    for _ in range(2):
        code, out = play(monkeypatch, capsys, tmp_path, f"/crop {crop(task)}\n/answer {task.answer}\n")
        assert code == 0 and "turn1_1.png" in out


@pytest.mark.parametrize("name", ["input.png", "turn2_1.png"])
@pytest.mark.parametrize("content", ["image", "text"])
def test_files_of_others_are_not_written_over(monkeypatch, capsys, tmp_path, name, content):
    mine = tmp_path / "seen" / name
    mine.parent.mkdir()
    if content == "image":
        Image.new("RGB", (9, 9), "red").save(mine)
    else:
        mine.write_text("mine")
    before = mine.read_bytes()
    monkeypatch.setattr("sys.stdin", io.StringIO("/crop 1 1 50 50\n/crop 1 1 50 50\n"))
    assert cli.main(["play", "--scenes", "toy", "--index", "3", "--out", str(mine.parent)]) == 1
    assert f"{mine.parent} holds {name}" in capsys.readouterr().err
    assert mine.read_bytes() == before and [path.name for path in mine.parent.iterdir()] == [name]


@pytest.fixture
def own_rows(tmp_path):
    """A file of rows under column names of its own, with its images in another folder."""
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (90, 60), "red").save(tmp_path / "photos" / "a.png")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"photo": "a.png", "ask": "Which colour?", "label": "red", "boxes": [0, 0, 9, 9]}\n')
    return rows


def test_own_data_with_own_column_names(monkeypatch, capsys, tmp_path, own_rows):
    monkeypatch.setattr("sys.stdin", io.StringIO("/answer red\n"))
    options = ["--columns", "image=photo", "question=ask", "answer=label", "targets=boxes", "--scorer", "answer"]
    options += ["--reader", "boxes=xyxy", "--image-folder", str(tmp_path / "photos"), "--out", str(tmp_path / "seen")]
    assert cli.main(["play", "--bench", "dataset", "--data", str(own_rows), *options]) == 0
    out = capsys.readouterr().out
    assert "Which colour?" in out and "The answer is right" in out and "[(0, 0, 9, 9)]" in out


@pytest.mark.parametrize("bench", ["dataset", "video"])
def test_a_bench_without_data_of_its_own_asks_for_it(capsys, bench):
    assert cli.main(["play", "--bench", bench]) == 1
    said = capsys.readouterr().err
    assert f"codev play --bench {bench} --data " in said and "--data synthetic" in said


def test_generated_scenes_of_such_a_bench_are_played_on_request(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert cli.main(["play", "--bench", "dataset", "--data", "synthetic", "--index", "0"]) == 0
    assert cli.main(["play", "--bench", "dataset", "--scenes", "toy", "--index", "0"]) == 0
    assert capsys.readouterr().out.count("Task 0:") == 2


def test_a_negative_seed_is_explained(capsys):
    assert cli.main(["play", "--scenes", "toy", "--seed", "-1"]) == 1
    assert capsys.readouterr().err == "codev play: --seed is -1; it must be at least 0.\n"


def test_scorers_and_columns_that_do_not_exist_are_explained(capsys, own_rows):
    words = ["play", "--bench", "dataset", "--data", str(own_rows), "--columns", "image"]
    assert cli.main(words) == 1 and "--columns image: write NAME=VALUE." in capsys.readouterr().err
    assert cli.main(["play", "--scenes", "toy", "--scorer", "rulez"]) == 1
    assert "Did you mean 'rules'?" in capsys.readouterr().err


def test_all_that_is_said_breaks_between_words(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "50")
    _, out = play(monkeypatch, capsys, tmp_path, "help\n/crop 1 2\n/prompt\n/answer nothing of the kind\n")
    lines = [line for line in out.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 50
    assert [line for line in lines if line.startswith("  ")][1] == " " * 22 + "in pixels"  # under its column


def test_a_file_as_out_is_explained(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert cli.main(["play", "--scenes", "toy", "--out", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f"codev play: --out {tmp_path / 'file'} is a file; give a folder.\n"


@pytest.mark.parametrize("typed", ["--indx", "--ind"])
def test_a_mistyped_option_names_the_nearest(capsys, typed):
    with pytest.raises(SystemExit) as stop:
        cli.main(["play", "--scenes", "toy", typed, "3"])
    assert stop.value.code == 2 and "Did you mean --index?" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["quit", " EXIT ", "/quit"])
def test_quit_ends_without_a_turn(monkeypatch, capsys, tmp_path, word):
    code, out = play(monkeypatch, capsys, tmp_path, f"{word}\n/answer 1\n")
    assert code == 0 and "turn reward" not in out and out.endswith("The episode was left before its end.\n")


def test_looks_that_nobody_judged_are_not_called_wrong(monkeypatch, capsys, tmp_path, own_rows):
    options = ["--columns", "image=photo", "question=ask", "answer=label", "--image-folder", str(tmp_path / "photos")]
    words = ["play", "--bench", "dataset", "--data", str(own_rows), *options, "--out", str(tmp_path / "seen")]
    for typed, says in [
        ("/crop 0 0 20 20\n/answer red\n", "The images were not judged. The evidence: unknown."),
        ("/answer red\n", "No program looked at the evidence: unknown."),
    ]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        with pytest.warns(RuntimeWarning, match="no target boxes") if "crop" in typed else contextlib.nullcontext():
            assert cli.main(words) == 0
        assert says in capsys.readouterr().out.replace("\n", " ")


def test_a_dialect_whose_images_are_variables(monkeypatch, capsys, tmp_path, task):
    code, out = play(
        monkeypatch, capsys, tmp_path, f"/crop {crop(task)}\n/answer {task.answer}\n", "--dialect", "pyvision"
    )
    assert code == 0 and "The answer is right" in out
    assert Image.open(tmp_path / "seen" / "image_clue_0.png").size == task.image.size


def test_turns_that_run_out_are_no_wrong_answer(monkeypatch, capsys, tmp_path, task):
    _, out = play(monkeypatch, capsys, tmp_path, "/crop 1 1 50 50\n", "--max-turns", "1")
    said = " ".join(out.split())
    assert f"There was no answer; the right one is: {task.answer}." in said and "is wrong" not in said
