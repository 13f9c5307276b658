"""The files under deploy/ fit the server: options exist, probed routes answer, and stopping leaves time to drain."""

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from running_server import launch, wait_until_ready

DEPLOY = Path(__file__).parents[2] / "deploy"
FLAG = re.compile(r"--[a-z][a-z-]+")
SERVED = {"Dockerfile": "ENTRYPOINT", "paceline.service": "ExecStart=", "kubernetes.yaml": "            - --"}


def manifest(kind: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return next(document for document in documents if document["kind"] == kind)


def container() -> dict[str, Any]:
    return manifest("Deployment")["spec"]["template"]["spec"]["containers"][0]


def unit(name: str) -> str:
    return next(
        line.removeprefix(f"{name}=")
        for line in (DEPLOY / "paceline.service").read_text().splitlines()
        if line.startswith(f"{name}=")
    )


@cache
def served_flags() -> set[str]:
    command = [sys.executable, "-m", "paceline.cli", "serve", "--help"]
    return set(FLAG.findall(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@pytest.mark.parametrize("name", SERVED)
def test_every_option_exists(name: str) -> None:
    lines = [line for line in (DEPLOY / name).read_text().splitlines() if line.startswith(SERVED[name])]
    used = set(FLAG.findall("\n".join(lines)))
    assert used
    assert used <= served_flags()


def test_every_probed_route_answers() -> None:
    probes = [container()[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
    image_probe = re.search(r"127\.0\.0\.1:8000(/\w+)", (DEPLOY / "Dockerfile").read_text())
    assert image_probe is not None
    server = wait_until_ready(launch({}, {}))
    try:
        for path in (*probes, image_probe.group(1)):
            assert httpx.get(server.url.removesuffix("/v1") + path).status_code == 200, path
    finally:
        server.stop()


def test_a_pod_has_time_to_drain() -> None:
    pod = manifest("Deployment")["spec"]["template"]["spec"]
    waits_s = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    drains_s = next(int(arg.split("=")[1]) for arg in container()["args"] if arg.startswith("--shutdown-timeout"))
    assert pod["terminationGracePeriodSeconds"] >= waits_s + drains_s + 10


def test_the_service_has_time_to_drain() -> None:
    drains_s = int(unit("ExecStart").split("--shutdown-timeout ")[1].split()[0])
    assert int(unit("TimeoutStopSec")) >= drains_s + 10
    assert unit("KillMode") == "mixed", "the engine must outlive SIGTERM until its requests have finished"


def test_selectors_meet_labels_and_ports_have_names() -> None:
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert manifest("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("Service")["spec"]["selector"] == labels
    names = {port["name"] for port in container()["ports"]}
    assert {port["targetPort"] for port in manifest("Service")["spec"]["ports"]} <= names
    volumes = {volume["name"] for volume in manifest("Deployment")["spec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == volumes


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit_and_finds_it_confined(tmp_path: Path) -> None:
    # The path of a program that exists here: the check looks for it.
    text = (DEPLOY / "paceline.service").read_text().replace("/opt/paceline/bin/paceline", sys.executable)
    path = tmp_path / "paceline.service"
    path.write_text(text)
    verified = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", path]
    confined = subprocess.run(command, capture_output=True, text=True, check=False)
    assert confined.returncode == 0, confined.stdout
