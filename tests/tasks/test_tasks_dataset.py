"""A user's own data: every kind of source, the mapping of columns, and errors for a wrong one."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from PIL import Image
from real_data import base64_text, encoded, encoded_image, own_cache, write_parquet, write_tsv  # noqa: F401

from codev_env.errors import ConfigError, TaskError
from codev_env.scoring import is_correct
from codev_env.tasks import open_bench, wrap_tasks
from codev_env.tasks.readers.dataset import open_dataset
from codev_env.types import TaskSet


def jsonl(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(number: int, **changes) -> dict:
    return {"image": f"{number}.png", "question": f"What is {number}?", "answer": str(number), **changes}


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(4):
        (tmp_path / "images" / f"{number}.png").write_bytes(encoded_image(number))
    return tmp_path


# ---- sources


def test_folder_of_images_with_jsonl(photos):
    jsonl(photos / "rows.jsonl", [row(i, id=f"q{i}", category="even odd".split()[i % 2], note=i) for i in range(4)])
    tasks = open_dataset(photos, "test")
    assert isinstance(tasks, TaskSet)
    assert (len(tasks), tasks.name, tasks.source) == (4, "dataset", "real")
    task = tasks[tasks.index_of("q3")]
    assert (task.question, task.answer, task.choices, task.category) == ("What is 3?", "3", (), "odd")
    assert task.image.getpixel((40, 40)) == (3, 0, 7)
    assert (task.meta["bench"], task.meta["note"], task.meta["question_type"]) == ("dataset", 3, "free_form")
    assert len(open_dataset(photos / "rows.jsonl", "train", subset="even")) == 2


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
def test_jsonl_with_base64(tmp_path, prefix):
    big = encoded(Image.effect_noise((80, 80), 50).convert("RGB"))
    path = jsonl(
        tmp_path / "a.jsonl", [row(0, image=prefix + base64_text(big)), row(1, image=base64_text(encoded_image(1)))]
    )
    tasks = open_dataset(path)
    assert [task.image.size for task in tasks] == [(80, 80), (64, 48)]
    assert not any(len(str(value)) > 5000 for task in tasks for value in task.meta.values())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n    "])
def test_base64_with_line_breaks(tmp_path, end):
    text = base64.encodebytes(encoded_image(1)).decode().replace("\n", end)
    assert text.count(end) > 1
    tasks = open_dataset(
        jsonl(tmp_path / "a.jsonl", [row(0, image=text), row(1, image=f"data:image/png;base64,{text}")])
    )
    assert [task.image.getpixel((40, 40)) for task in tasks] == [(1, 0, 7)] * 2


def test_json_and_tsv(photos):
    (photos / "rows.json").write_text(json.dumps([row(0), row(1)]))
    assert [task.answer for task in open_dataset(photos / "rows.json")] == ["0", "1"]
    path = write_tsv(photos / "rows.tsv", [row(2), row(3)])
    assert [task.image.getpixel((40, 40))[0] for task in open_dataset(path)] == [2, 3]


@pytest.mark.parametrize("shape", ["struct", "bytes", "list", "path"])
def test_parquet(photos, shape):
    def cell(number: int):
        data = encoded_image(number)
        struct = {"bytes": data, "path": f"{number}.png"}
        return {"struct": struct, "bytes": data, "list": [struct, struct], "path": f"{number}.png"}[shape]

    path = write_parquet(photos / "train.parquet", [row(i, image=cell(i)) for i in range(4)], group=2)
    tasks = open_dataset(path)
    assert [task.image.getpixel((40, 40))[0] for task in tasks] == [0, 1, 2, 3]
    assert {len(task.images) for task in tasks} == {2 if shape == "list" else 1}


def test_imagefolder_by_split(tmp_path):
    for split, number in (("train", 0), ("validation", 1)):
        jsonl(tmp_path / split / "metadata.jsonl", [{**row(number), "file_name": f"{number}.png", "image": None}])
        (tmp_path / split / f"{number}.png").write_bytes(encoded_image(number))
    columns = {"image": "file_name"}
    assert open_dataset(tmp_path, "train", columns=columns)[0].answer == "0"
    assert open_dataset(tmp_path, "val", columns=columns)[0].answer == "1"


def test_splits_by_file_name(photos):
    for split, number in (("train", 0), ("val", 1)):
        jsonl(photos / f"{split}.jsonl", [row(number)])
    assert [open_dataset(photos, split)[0].answer for split in ("train", "val")] == ["0", "1"]
    with pytest.raises(TaskError, match="has no split 'test'; its files are train.jsonl, val.jsonl"):
        open_dataset(photos, "test")


def test_splits_by_column(photos):
    path = jsonl(photos / "rows.jsonl", [row(i, part="dev" if i == 3 else "train") for i in range(4)])
    columns = {"split": "part"}
    assert len(open_dataset(path, "train", columns=columns)) == 3
    tasks = open_dataset(path, "val", columns=columns)
    assert (tasks[0].answer, len(tasks)) == ("3", 1)
    with pytest.raises(TaskError, match="no row has 'part' 'test'; the values are 'dev', 'train'"):
        open_dataset(path, "test", columns=columns)


def test_several_files_that_could_be_meant(photos):
    jsonl(photos / "a.jsonl", [row(0)])
    jsonl(photos / "b.jsonl", [row(1)])
    with pytest.raises(TaskError, match=r"several files that could be meant: a\.jsonl, b\.jsonl"):
        open_dataset(photos)


@pytest.mark.parametrize("name", ["no/such/path/here", "just-a-name", "./x"])
def test_no_such_source(name):
    with pytest.raises(TaskError, match="no such file or folder, nor a name of a data set on the hub"):
        open_dataset(name)


@pytest.mark.parametrize("side", range(28, 40))
def test_short_base64_may_be_longer_than_a_name(tmp_path, side):
    data = encoded(Image.effect_noise((side, 7), 50).convert("L"))
    assert 255 < len(base64_text(data)) <= 1024
    path = jsonl(tmp_path / "a.jsonl", [row(0, image=base64_text(data))])
    assert open_dataset(path, images={"small": "keep"})[0].image.size == (side, 7)


@pytest.mark.parametrize("written", [json.dumps, repr])
def test_lists_of_images_as_text(tmp_path, written):
    names = ["it's.png", 'a "quoted" name.png', "plain.png"]
    for name in names:
        (tmp_path / name).write_bytes(encoded_image(3))
    assert len(open_dataset(jsonl(tmp_path / "a.jsonl", [row(0, image=written(names))]))[0].images) == 3
    with pytest.raises(TaskError, match="the list of images is not JSON"):
        open_dataset(jsonl(tmp_path / "b.jsonl", [row(0, image="['plain.png'")]))[0]


def test_a_tsv_file_with_an_index_may_have_paths(photos):
    rows = [row(0, index="a"), row(1, index="b"), row(2, index="c", image="a"), row(3, index="d", image="d")]
    tasks = open_dataset(write_tsv(photos / "rows.tsv", rows))
    assert [tasks[n].image.getpixel((40, 40))[0] for n in range(3)] == [0, 1, 0]
    with pytest.raises(TaskError, match="'image' is 'd', but that row has no image either"):
        tasks[3]
    rows[0]["image"] = "missing.png"
    with pytest.raises(TaskError, match="line 2: the image .*missing.png is missing"):
        open_dataset(write_tsv(photos / "rows.tsv", rows))[0]


def test_bytes_and_long_texts_of_other_columns_are_left_out(photos):
    rest = {"short": "x" * 10_000, "long": "x" * 10_001, "info": {"mask": "x" * 10_001, "tags": ["a", "x" * 10_001]}}
    path = jsonl(photos / "a.jsonl", [row(0, **rest)])
    expected = {"short": rest["short"], "info": {"tags": ["a"]}}
    meta = open_dataset(path)[0].meta
    assert {name: meta.get(name) for name in rest} == {**expected, "long": None} and "long" not in meta
    tasks = open_dataset([row(0, **rest, raw=b"x", image=encoded_image(0), raws=[bytearray(b"x")])])
    meta = tasks[0].meta
    assert {name: meta[name] for name in ("short", "info", "raws")} == {**expected, "raws": []} and "raw" not in meta


# ---- columns


def test_mapping(photos):
    path = jsonl(
        photos / "rows.jsonl",
        [
            {
                "qid": 7,
                "meta": {"file": "2.png"},
                "problem text": "Which?",
                "gold": "B",
                "opts": ["red", "blue"],
                "where": [[1, 2, 10, 20], [3, 4, 5, 6]],
                "kind": "color",
                "done": "rotate_90",
            }
        ],
    )
    columns = {
        "id": "qid",
        "image": "meta.file",
        "question": "problem text",
        "answer": "gold",
        "choices": "opts",
        "targets": "where",
        "category": "kind",
        "transform": "done",
    }
    task = open_dataset(path, columns=columns, boxes="xywh")[0]
    assert (task.task_id, task.question, task.answer, task.choices) == ("7", "Which?", "blue", ("red", "blue"))
    assert (task.targets, task.category, task.transform) == (((1, 2, 11, 22), (3, 4, 8, 10)), "color", ("rotate_90",))
    assert task.image.getpixel((40, 40)) == (2, 0, 7)
    assert open_dataset(path, columns=columns)[0].targets == ((1, 2, 10, 20), (3, 4, 5, 6))


def test_choices_in_several_columns(photos):
    rows = [row(0, A="red", B="blue", C="", answer="b"), row(1, A="red", B="blue", C="green", answer="C")]
    tasks = open_dataset(write_tsv(photos / "rows.tsv", rows), columns={"choices": ["A", "B", "C"]})
    assert [(task.choices, task.answer) for task in tasks] == [
        (("red", "blue"), "blue"),
        (("red", "blue", "green"), "green"),
    ]


@pytest.mark.parametrize(
    ("answer", "choices", "expected"),
    [
        ("blue", ["red", "blue"], "blue"),
        ("B", ["red", "blue"], "blue"),
        ("(b)", ["red", "blue"], "blue"),
        (1, ["red", "blue"], "blue"),
        ("A", ["B", "A"], "A"),
        (3, ["1", "3"], "3"),
        ("A", {"A": "red", "B": "blue"}, "red"),
        ("A", '["red", "blue"]', "red"),
        (2.0, None, "2"),
        ("any text", [], "any text"),
    ],
)
def test_answers(photos, answer, choices, expected):
    task = open_dataset(jsonl(photos / "a.jsonl", [row(0, answer=answer, choices=choices)]))[0]
    assert task.answer == expected
    assert is_correct(task, "ABCD"[task.choices.index(expected)] if task.choices else expected)


@pytest.mark.parametrize(
    ("answer", "choices", "expected"),
    [
        ("1", ["red", "blue"], "blue"),
        ("0", ["red", "blue"], "red"),
        (" 1.0 ", ["red", "blue"], "blue"),
        (1.0, ["red", "blue"], "blue"),
        (0, ["10", "20"], "10"),
        ("1", ["2", "1"], "1"),
        (1.0, ["2", "1"], "1"),
        ("10", list("klmnopqrstuvw"), "u"),
    ],
)
def test_a_choice_is_named_by_its_number_as_text_and_as_a_whole_float_too(photos, answer, choices, expected):
    assert open_dataset(jsonl(photos / "a.jsonl", [row(0, answer=answer, choices=choices)]))[0].answer == expected


def test_numbers_of_choices_in_tsv(photos):
    rows = [row(0, A="red", B="blue", answer=1), row(1, A="red", B="blue", answer=0)]
    tasks = open_dataset(write_tsv(photos / "rows.tsv", rows), columns={"choices": ["A", "B"]})
    assert [task.answer for task in tasks] == ["blue", "red"]


@pytest.mark.parametrize("choices", [["2.00", "1.00", "3.00"], ["10", "20", "30"], ["1 cm", "2 cm", "3 cm"]])
@pytest.mark.parametrize("answer", ["2", 2.0])
def test_a_number_that_may_be_a_value_is_not_taken_for_the_number_of_a_choice(photos, answer, choices):
    path = jsonl(photos / "a.jsonl", [row(0, answer=answer, choices=choices)])
    with pytest.raises(TaskError, match=r"line 1: the answer is .*2.*, which may be a number of a choice .*its letter"):
        open_dataset(path)


@pytest.mark.parametrize("answer", ["2", 2.0, 0.5, "-1", -1.0])
def test_numbers_that_no_choice_has(photos, answer):
    path = jsonl(photos / "a.jsonl", [row(0, answer=answer, choices=["red", "blue"])])
    with pytest.raises(TaskError, match=r"nor a number 0 to 1\."):
        open_dataset(path)


def test_shuffled_choices(photos):
    rows = [row(i % 4, id=i, choices=["right", "a", "b", "c"], answer="right") for i in range(40)]
    path = jsonl(photos / "a.jsonl", rows)
    assert {task.choices.index("right") for task in open_dataset(path)} == {0}
    tasks = open_dataset(path, shuffle_choices=True)
    assert {task.choices.index("right") for task in tasks} == {0, 1, 2, 3}
    assert [task.choices for task in tasks] == [task.choices for task in open_dataset(path, shuffle_choices=True)]
    assert [task.choices for task in tasks] != [
        task.choices for task in open_dataset(path, shuffle_choices=True, seed=1)
    ]
    assert {task.answer for task in tasks} == {"right"}


def test_boxes_count_in_the_upright_image_or_the_stored_one(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "0.png").write_bytes(encoded(Image.new("RGB", (60, 40)), "PNG", exif=exif))
    path = jsonl(tmp_path / "a.jsonl", [row(0, targets=[0, 0, 10, 5])])
    assert open_dataset(path)[0].image.size == (40, 60)
    assert open_dataset(path)[0].targets == ((0, 0, 10, 5),)
    assert open_dataset(path, frame="stored")[0].targets == ((35, 0, 40, 10),)


def test_boxes_on_a_turned_tiff_are_no_reason_to_ask_for_their_form(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "0.tiff").write_bytes(encoded(Image.new("RGB", (300, 200)), "TIFF", exif=exif))
    path = jsonl(tmp_path / "a.jsonl", [row(0, image="0.tiff", targets=[50, 220, 120, 290])])
    assert open_dataset(path)[0].targets == ((50, 220, 120, 290),)
    path = jsonl(tmp_path / "a.jsonl", [row(0, image="0.tiff", targets=[220, 50, 290, 120])])
    assert open_dataset(path, frame="stored")[0].targets == ((80, 220, 150, 290),)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (
            {"question": "qestion"},
            TaskError,
            "has no column 'qestion'. Did you mean 'question'.* Its columns: image, q",
        ),
        ({"choices": ["A", "B"]}, TaskError, "has no column 'A'.*asked for by columns={'choices'"),
        ({"questions": "question"}, ConfigError, "unknown field in columns 'questions'. Did you mean 'question'"),
        ({"answer": ["a", "b"]}, ConfigError, r"columns\['answer'\] is .*must be the name of one column"),
        ({"choices": []}, ConfigError, r"columns\['choices'\]"),
    ],
)
def test_wrong_mapping(photos, columns, error, message):
    path = jsonl(photos / "a.jsonl", [row(0)])
    with pytest.raises(error, match=message):
        open_dataset(path, columns=columns)


@pytest.mark.parametrize("missing", ["image", "question", "answer"])
def test_missing_column(photos, missing):
    data = {"x" + key if key == missing else key: value for key, value in row(0).items()}
    with pytest.raises(TaskError, match=rf"has no column for '{missing}' .*columns={{'{missing}': …}}"):
        open_dataset(jsonl(photos / "a.jsonl", [data]))


@pytest.mark.parametrize("option", [{"boxes": "yxyx"}, {"frame": "upright"}, {"on_error": "ignore"}])
def test_wrong_option(photos, option):
    with pytest.raises(ConfigError, match=f"unknown {next(iter(option))} "):
        open_dataset(jsonl(photos / "a.jsonl", [row(0)]), **option)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "C", "choices": ["a", "b"]}, "line 2: the answer is 'C', which is neither .* nor a letter A to B"),
        ({"answer": 2, "choices": ["a", "b"]}, "line 2: the answer is 2"),
        ({"answer": True, "choices": ["a", "b"]}, "line 2: the answer is True"),
        ({"answer": ""}, "line 2: the answer is empty"),
        ({"answer": "a", "choices": ["a", "a"]}, "line 2: the choices are .*expected 2 to 26 different texts"),
        ({"answer": "a", "choices": "a, b"}, "line 2: 'a, b' is not JSON"),
        ({"question": None}, "line 2: the question is empty"),
        ({"targets": [1, 2, 3]}, "line 2: a box is"),
        ({"targets": [9, 9, 3, 3]}, "line 2: the box .* has no area"),
        ({"id": "q0"}, "line 2: the id 'q0' occurs twice, first in .*line 1"),
        ({"id": ""}, "line 2: 'id' is empty"),
    ],
)
def test_bad_rows(photos, change, message):
    rows = [row(i, **{"id": f"q{i}", **(change if i == 1 else {})}) for i in range(3)]
    path = jsonl(photos / "a.jsonl", rows)
    with pytest.raises(TaskError, match=rf"a\.jsonl, {message}"):
        open_dataset(path)
    with pytest.warns(UserWarning, match="left out 1 of 3 rows"):
        assert [task.task_id for task in open_dataset(path, on_error="skip")] == ["q0", "q2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": [0, 0, 10**400, 9]}, "a box is "),
        ({"targets": [0, 0, 9, 9, 10**400]}, "a box is .*its fifth number"),
        ({"transform": 5}, "the transform is 5; expected a name"),
        ({"transform": ["rotate_90", 5]}, "the transform is "),
    ],
)
def test_values_that_no_field_takes(photos, change, message):
    path = jsonl(photos / "a.jsonl", [row(0), row(1, **change), row(2)])
    with pytest.raises(TaskError, match=rf"a\.jsonl, line 2: {message}"):
        open_dataset(path)
    with pytest.warns(UserWarning, match="left out 1 of 3 rows"):
        assert len(open_dataset(path, on_error="skip")) == 2


def test_lines_that_are_not_json(photos):
    path = jsonl(photos / "a.jsonl", [row(0), row(1)])
    path.write_text(path.read_text().replace('"1.png"', '"1.png'))
    with pytest.raises(TaskError, match=r"a\.jsonl, line 2: is not JSON"):
        open_dataset(path)
    with pytest.warns(UserWarning, match="left out 1 of 2"):
        assert len(open_dataset(path, on_error="skip")) == 1


@pytest.mark.parametrize("field", ["question", "answer"])
def test_half_a_character_is_named_with_its_row(photos, field):
    rows = [row(0), row(1) | {field: "street \ud83d"}]
    sources = [jsonl(photos / "rows.jsonl", rows), photos / "rows.json", rows]
    sources[1].write_text(json.dumps(rows), encoding="utf-8")
    for source, where in zip(sources, ("line 2", "entry 1", "row 1"), strict=True):
        with pytest.raises(TaskError, match=rf"{where}.*half of a character \(\\ud83d"):
            open_dataset(source, image_folder=photos)
        with pytest.warns(UserWarning, match="left out 1 of 2 rows"):
            assert len(open_dataset(source, image_folder=photos, on_error="skip")) == 1
    assert open_dataset([row(1) | {field: "street \U0001f600"}], image_folder=photos)


def test_half_a_character_in_choices_as_text_is_named_with_its_row(photos):
    path = write_tsv(photos / "a.tsv", [row(0, choices='["a\\ud83d", "b"]', answer="b")])
    with pytest.raises(TaskError, match="line 2.*half of a character"):
        open_dataset(path)


def test_an_id_may_be_any_text(photos):
    ids = ["street \ud83d", "street \udcff"]
    rows = [row(number, id=name, choices=["0", "1"]) for number, name in enumerate(ids)]
    tasks = open_dataset(rows, image_folder=photos, shuffle_choices=True)
    assert [task.task_id for task in tasks] == ids
    assert len(wrap_tasks(tasks, "corruption")) > 2


def test_nothing_is_left(photos):
    with pytest.raises(TaskError, match=r"a\.jsonl: no rows that can be used \(1 of 1 are bad\)"):
        open_dataset(jsonl(photos / "a.jsonl", [row(0, answer="")]), on_error="skip")


def test_through_the_table_of_benchmarks(photos):
    path = jsonl(photos / "a.jsonl", [row(0, gold="zero")])
    tasks = open_bench("dataset", path, "test", columns={"answer": "gold"})
    assert tasks[0].answer == "zero"


# ---- Hugging Face data sets


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets")


def saved(datasets, split_rows: dict[str, list[int]]):
    def features():
        return datasets.Features(
            {
                "image": datasets.Image(),
                "question": datasets.Value("string"),
                "answer": datasets.Value("string"),
                "extra": {"kind": datasets.Value("string")},
            }
        )

    def make(numbers: list[int]):
        rows = [row(i, image={"bytes": encoded_image(i), "path": None}, extra={"kind": f"k{i}"}) for i in numbers]
        return datasets.Dataset.from_list(rows, features=features())

    return datasets.DatasetDict({split: make(numbers) for split, numbers in split_rows.items()})


def test_saved_with_datasets(tmp_path, datasets):
    both = saved(datasets, {"train": [0, 1, 2], "validation": [3]})
    both.save_to_disk(str(tmp_path / "both"))
    tasks = open_dataset(tmp_path / "both", "train", columns={"category": "extra.kind"})
    assert [(task.answer, task.category, task.image.getpixel((40, 40))[0]) for task in tasks] == [
        ("0", "k0", 0),
        ("1", "k1", 1),
        ("2", "k2", 2),
    ]
    assert open_dataset(tmp_path / "both", "val")[0].answer == "3"
    with pytest.raises(TaskError, match="has no split 'test'; it has 'train', 'validation'"):
        open_dataset(tmp_path / "both", "test")
    with pytest.raises(TaskError, match="has no column 'extra.kinds'"):
        open_dataset(tmp_path / "both", "train", columns={"category": "extra.kinds"})
    both["train"].select([2, 0]).save_to_disk(str(tmp_path / "one"))
    assert [task.answer for task in open_dataset(tmp_path / "one", "test")] == ["2", "0"]


def test_from_the_hub(monkeypatch, datasets):
    asked = []

    def load_dataset(name, config=None):
        asked.append((name, config))
        return saved(datasets, {"train": [0, 1], "test": [2]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    tasks = open_dataset("someone/some-data", "test", config="small")
    assert (len(tasks), tasks[0].answer, asked) == (1, "2", [("someone/some-data", "small")])
    assert tasks[0].image.getpixel((40, 40)) == (2, 0, 7)


def test_the_hub_cannot_be_reached(monkeypatch, datasets):
    def load_dataset(name, config=None):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        TaskError, match="someone/some-data: there is no such path, and .*Couldn't reach the Hub.*local copy"
    ):
        open_dataset("someone/some-data")


def test_datasets_is_not_installed(tmp_path, monkeypatch):
    (tmp_path / "state.json").write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(TaskError, match=r"needs datasets .*pip install 'codev-env\[data\]'"):
        open_dataset(tmp_path)
    with pytest.raises(TaskError, match="There is no path a/b; reading it from the hub needs datasets"):
        open_dataset("a/b")


@pytest.mark.parametrize("form", ["memory", "saved", "parquet"])
def test_class_labels_are_their_names(tmp_path, datasets, form):
    kind, text = datasets.ClassLabel(names=["cat", "dog"]), datasets.Value("string")
    features = {"image": datasets.Image(), "question": text, "answer": kind, "choices": datasets.Sequence(text)}
    features |= {"tags": datasets.Sequence(kind), "info": {"animal": kind}}
    rest = {"choices": ["dog", "cat"], "tags": [0, 1], "info": {"animal": 1}}
    rows = [row(0, image={"bytes": encoded_image(n), "path": None}, answer=n, **rest) for n in (1, 0)]
    found = datasets.Dataset.from_list([*rows, {**rows[0], "choices": None}], features=datasets.Features(features))
    if form == "saved":
        found.save_to_disk(str(tmp_path / "saved"))
    if form == "parquet":
        found.to_parquet(str(tmp_path / "a.parquet"))
    source = {"memory": found, "saved": tmp_path / "saved", "parquet": tmp_path / "a.parquet"}[form]
    tasks = open_dataset(source, columns={"category": "info.animal"}, subset="dog")
    assert [(task.answer, task.category, task.meta["tags"]) for task in tasks] == [
        (answer, "dog", ["cat", "dog"]) for answer in ("dog", "cat", "dog")
    ]


def test_a_label_that_is_not_known_is_empty(datasets):
    kind, text = datasets.ClassLabel(names=["cat", "dog"]), datasets.Value("string")
    features = datasets.Features({"image": text, "question": text, "answer": kind})
    with pytest.raises(TaskError, match="row 0: the answer is empty"):
        open_dataset(datasets.Dataset.from_list([row(0, answer=-1)], features=features))
