"""Upload of a finished run's policy to the model hub, with a model card."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from codev_env.app.check import Check, Status
from codev_env.errors import CodevError, first_line
from codev_env.files import write_text
from codev_env.rewards import REWARDS, get_reward
from codev_train.evaluate import comparison
from codev_train.run.config import START_OPTIONS
from codev_train.run.loads import looks
from codev_train.run.model_files import folder_problem
from codev_train.run.options import TrainOptions

REPORT = "report.html"


class UploadFailed(CodevError):
    """A finished run's policy was not uploaded; the message has the command that does it."""


def hub_checks(name: str, lacking: Status) -> Iterator[Check]:
    """Look whether `--push-to-hub NAME` can work: name, token and its rights; nothing is made on the hub.

    Args:
        name: Name of the repository; empty uploads nothing.
        lacking: Status of something that this machine lacks.
    """
    if not name:
        return
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        detail = f"--push-to-hub {name}: {first_line(error)}"
        yield Check("hub", "push-to-hub", "fail", detail, "give NAME or OWNER/NAME")
        return
    if problem := _access_problem(name):
        advice = "run `hf auth login`, or leave --push-to-hub out and upload later"
        yield Check("hub", "push-to-hub", lacking, f"--push-to-hub {name}: {problem}", advice)
    else:
        yield Check("hub", "push-to-hub", "ok", f"the policy is uploaded to {name}")


def publish(run: Path) -> None:
    """Upload `model/` of a finished run to the repository that its options name; without a name, do nothing.

    Raises:
        UploadFailed: The hub did not take it; the run is complete all the same.
    """
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    options = TrainOptions(**summary["options"])
    if not (name := options.push_to_hub):
        return
    model, private = run / "model", options.push_private
    write_text(model / "README.md", model_card(summary, options))
    if options.push_report and (run / REPORT).is_file():
        write_text(model / REPORT, shareable((run / REPORT).read_text("utf-8")))
    again = shlex.join(["hf", "upload", name, str(model), *(["--private"] if private else [])])
    print(f"Uploading to {name}; if it is interrupted: {again}", flush=True)
    try:
        from huggingface_hub import HfApi

        # None leaves the visibility to the owner's settings.
        repository = HfApi().create_repo(name, private=private or None, exist_ok=True)
        if repository.repo_id != name:  # without an owner it is the user's; others need the whole name
            write_text(model / "README.md", model_card(summary, replace(options, push_to_hub=repository.repo_id)))
        HfApi().upload_folder(repo_id=repository.repo_id, folder_path=model, commit_message=f"Run {run.name}")
    except Exception as error:  # of whichever HTTP library this version of the client uses
        raise UploadFailed(
            f"the run is complete in {run}, but the upload to {name} failed: {first_line(error)}. "
            f"Repeat it with: {again}"
        ) from error
    print(f"Uploaded:    {repository}")


def shareable(page: str) -> str:
    """Return a report without its settings, whose options may name local paths."""
    page = re.sub(r'<section id="settings">.*?</section>', "", page, flags=re.DOTALL)
    return page.replace('<a href="#settings">Settings</a>', "")


def model_card(summary: Mapping[str, Any], options: TrainOptions) -> str:
    """Write the model card of a run: where the policy comes from, how it was trained, what changed, how to load it."""
    header = {"library_name": "transformers", "pipeline_tag": "image-text-to-text", "tags": ["codev-env", "tapo"]}
    start = "a local model"
    if not options.model or (Path(options.model) / START_OPTIONS).is_file():
        start = "a cold start by SFT"
    elif _is_of_hub(options.model):  # local paths stay private
        header["base_model"] = start = options.model
    env, held_out = options.env, options.eval
    data = {"synthetic": f"generated scenes (`{env.scenes}`)", "hub": "its data set"}.get(env.data, Path(env.data).name)
    scenes = f"generated scenes (`{held_out.scenes}`)" if held_out.scenes else "the same data"
    other = Path(held_out.data or held_out.id).name or scenes
    return f"""---
{yaml.safe_dump(header, sort_keys=False)}---

# {options.push_to_hub.rpartition("/")[2]}

A vision-language model that answers questions about images by writing Python that crops, rotates or measures them.

- **Start**: {start}
- **Method**: {_method(options)}, reward `{options.reward}`, loss `{options.loss}`, credit `{options.credit}`,
  {options.steps} updates of {options.prompts} × {options.group} episodes, seed {options.seed}
- **Reward**: {_reward_text(options)}
- **Environment**: `{env.id}`, dialect `{env.dialect}`, up to {env.max_turns} turns
- **Training data**: {data}

## Evaluation

{summary["after"]["n"]} held-out episodes of {other} (split `{held_out.split}`, {summary["source"]}),
{_sampled(summary, held_out.temperature)}; 95 % intervals in brackets.

```
{comparison(summary["before"], summary["after"])}
```

- **Accuracy** is the share of episodes whose answer is right, by the environment's scorer.
- **Faithful** is an episode in which some tool call clearly showed the evidence as its main content
  (judge: `{_judge_name(env.judge)}`{_definition(summary)}). An answer can be right without it.
{_attached(options)}
## Use

```python
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

model = AutoModelForImageTextToText.from_pretrained("{options.push_to_hub}")
tokenizer = AutoTokenizer.from_pretrained("{options.push_to_hub}")
image_processor = AutoImageProcessor.from_pretrained("{options.push_to_hub}")
```

The environment runs its programs in a sandbox:

```
hf download {options.push_to_hub} --local-dir model
codev eval --model model --bench vstar --data DIR --out results
```
"""


def _method(options: TrainOptions) -> str:
    """Name the method, and the parts of it that not every run has."""
    parts = {
        "TAPO (arXiv 2511.19661)": options.reward.startswith("tapo"),
        "GRPO (arXiv 2402.03300)": not options.reward.startswith("tapo"),
        "self-imitation of looks": looks(options) > 0,
        "tasks first whose answer the policy does not guess": options.candidates > 1,
        f"LoRA of rank {options.lora.rank}": options.lora.rank > 0,
    }
    return ", ".join(name for name, is_used in parts.items() if is_used)


def _sampled(summary: Mapping[str, Any], temperature: float) -> str:
    """Say how the evaluations before and after were made, and whether they compare."""
    if "evaluation_before" in summary:
        return f"sampled at temperature {temperature:g}, before training with other options: the two do not compare"
    return f"the same before and after training, sampled at temperature {temperature:g}"


def _is_of_hub(model: str) -> bool:
    """Whether a model is named as on the hub; the folder of a path may be gone."""
    return not Path(model).exists() and model.count("/") < 2 and not folder_problem(model)


def _reward_text(options: TrainOptions) -> str:
    """Describe the reward: its weighted terms, or that it is the author's own."""
    if options.reward not in REWARDS:
        return "of the author's own"
    found = get_reward(options.reward, options.weights)
    terms = ", ".join(f"{term.weight:g} × `{term.name}`" for term in found.all_terms)
    return f"{terms} ({found.source})"


def _judge_name(judge: str) -> str:
    """Name a judge without its address or a path: of a server the model, of options their name."""
    if judge.startswith("{"):
        return str(json.loads(judge).get("name", "options"))
    return judge.rpartition("#")[2] if "#" in judge else judge.rpartition(":")[2]


def _definition(summary: Mapping[str, Any]) -> str:
    found = summary["after"].get("faithful_definition")
    return f", definition: {found}" if found else ""


def _attached(options: TrainOptions) -> str:
    return (
        f"\n[{REPORT}]({REPORT}) shows the rates with their intervals, and episodes.\n" if options.push_report else ""
    )


def _access_problem(name: str) -> str:
    """Return why this machine cannot upload to a repository, without a full stop; empty if it seems to."""
    from huggingface_hub import HfApi, constants, get_token

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE forbids uploads"
    if not get_token():
        return "there is no token of the hub (HF_TOKEN, or `hf auth login`)"
    try:
        user = HfApi().whoami()
    except Exception as error:  # of whichever HTTP library this version of the client uses
        return f"the hub does not accept the token: {first_line(error)}"
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        return "the token may only read; a token that may write is needed"
    owner, owners = name.rpartition("/")[0], [user["name"], *(group["name"] for group in user.get("orgs", ()))]
    if owner and owner not in owners:
        return f"{owner} is neither the user of the token nor one of its organisations ({', '.join(owners)})"
    return ""
