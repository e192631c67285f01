"""The judge before a real server: vLLM with toy weights, whose replies have the form asked for but no sense."""

from __future__ import annotations

import copy
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from judged import TASK, crop, step_of

from codev_env.errors import JudgeError
from codev_env.judges import VLMJudge
from codev_env.judges.rubrics import INSTRUCTIONS, LEVELS, SCHEMA

pytestmark = pytest.mark.integration

PYTHON = Path(os.environ.get("CODEV_VLLM_PYTHON") or Path(__file__).parents[2] / ".venv-vllm/bin/python")
START_S = 300


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip(f"needs vLLM: no {PYTHON}; set CODEV_VLLM_PYTHON to the Python of an environment that has it")
    folder = tmp_path_factory.mktemp("toy")
    save_toy(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "server.log"
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", "toy", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--enforce-eager", "--dtype", "float32"]
    # Random weights would fill the reply with the spaces that JSON allows.
    command += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **settings})
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def save_toy(folder: Path) -> None:
    pytest.importorskip("torch")
    from codev_agents.engines.options import ToyModelOptions
    from codev_agents.engines.toy import build_image_processor, build_model, build_tokenizer

    options = ToyModelOptions()
    tokenizer = build_tokenizer([*INSTRUCTIONS.values(), "a mug"], [], [])
    build_model(options, tokenizer, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    build_image_processor(options).save_pretrained(folder)


def wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"vLLM did not start (status {server.poll()}): {log.read_text(errors='replace')[-3000:]}")


def test_it_is_there(url):
    assert VLMJudge("toy", url).ping() == f"{url} serves toy"
    with pytest.raises(JudgeError, match="has no model 'other'"):
        VLMJudge("other", url).ping()
    with pytest.raises(JudgeError, match="refuses: NotFoundError"):
        VLMJudge("other", url).score(TASK, step_of(crop()), ())


def test_replies_without_sense_are_an_error(url):
    judge = VLMJudge("toy", url, retries=2, max_tokens=64)
    with pytest.raises(JudgeError, match="in 3 tries.*(cut off at max_tokens|not the object asked for)"):
        judge.score(TASK, step_of(crop()), ())
    stats = judge.stats()
    assert (stats.calls, stats.retries, stats.failures) == (3, 2, 1)
    assert 0 < stats.completion_tokens <= 3 * 64 < stats.prompt_tokens


def test_a_reply_of_the_form_asked_for_is_a_score(url, monkeypatch):
    # The weights cannot repeat a number or end a sentence, so the form leaves them only the grade.
    schema = copy.deepcopy(SCHEMA)
    schema["schema"]["properties"] |= {"why": {"type": "string", "enum": ["a mug"]}, "check": {"enum": [100_007]}}
    monkeypatch.setattr("codev_env.judges.client.SCHEMA", schema)
    monkeypatch.setattr("codev_env.judges.client.secrets.randbelow", lambda below: 7)
    judge = VLMJudge("toy", url, concurrency=4, temperature=1.0)
    scores = judge.score_batch([(TASK, step_of(crop(i), crop(100 + i, 90, 70)), ()) for i in range(10)])
    assert len(scores) == 10 and judge.stats().calls == 20 and judge.stats().retries == 0
    assert {score.value for score in scores} <= {(a + b) / 2 for a in LEVELS for b in LEVELS}
    assert all("a mug" in score.why and not score.failed for score in scores)
    calculation = VLMJudge("toy", url, rubric="calculation")
    assert calculation.score(TASK, step_of(stdout="3 + 4 = 7"), ()).value in LEVELS
