"""The README and the pages of docs/start run as they are printed, twice in a row."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.local.ports import RANGE_VARIABLE
from tests.docs.page_blocks import REASON, blocks_of, command_of_namespaces
from tests.docs.test_links import ROOT
from tests.requirements import missing

PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "start").glob("*.md"))]
OTHERWISE = {"docs/start/on-kubernetes-with-kind.md": "needs Docker; `make e2e` runs its steps on another Kubernetes"}
"""Pages of which no block is run, and why."""
NEEDS = {
    "README.md": [pytest.mark.kcat],
    "docs/start/on-this-machine.md": [pytest.mark.kcat],
    "docs/start/first-spark-job.md": [pytest.mark.java, pytest.mark.spark, pytest.mark.long],
}
STAND_INS = {
    "make demo\n": """
.venv/bin/python - <<'EOF'
from pathlib import Path
from confluent_kafka import Producer
from demo.fleet import DemoFleet
from demo.flights import load_flights
fleet = DemoFleet(Path("build/demo/fleet"), processes=False)
producer = Producer({"bootstrap.servers": fleet.up()["bootstrap"]})
for flight in load_flights()[:2000]:
    producer.produce("flights", flight)
assert producer.flush(60) == 0
EOF
"""
}
"""What is run for a block that takes too long."""
WRITTEN = ("build", "dist", ".ottla", ".venv", ".git")
"""What a page writes, or reads from elsewhere: its folder has all the rest of the checkout."""

TIMES = 2
Outputs = dict[int, list[str]]
"""What each block printed, each time, by the line where it begins."""


def run_page(page: str, folder: Path) -> Outputs:
    """Runs the page in a folder that looks like the checkout, and writes nothing into the checkout."""
    if not (namespaces := command_of_namespaces()):
        missing("the ports of the pages must be free: no network namespace to be had from `unshare`")
    checkout = folder / "checkout"
    checkout.mkdir()
    for path in ROOT.iterdir():
        if path.name not in WRITTEN:
            (checkout / path.name).symlink_to(path)
    (checkout / ".venv").symlink_to(sys.prefix)
    run = [
        {"line": block.line, "language": block.language, "code": STAND_INS.get(block.code, block.code)}
        for block in blocks_of((ROOT / page).read_text())
        if not block.reason or block.code in STAND_INS
    ]
    results = folder / "results.json"
    request = {
        "page": page,
        "folder": str(checkout),
        "blocks": run,
        "times": TIMES,
        "results": str(results),
    }
    (folder / "request.json").write_text(json.dumps(request))
    command = [*namespaces, sys.executable, "-m", "tests.docs.page_blocks", str(folder / "request.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540, check=False)
    found = json.loads(results.read_text()) if results.exists() else []
    assert [one for one in found if one["status"]] == []
    assert done.returncode == 0, done.stderr
    outputs: Outputs = {}
    for one in found:
        outputs.setdefault(one["line"], []).append(one["output"])
    assert [len(times) for times in outputs.values()] == [TIMES] * len(run)
    return outputs


def readme(printed: Callable[[str], list[str]]) -> None:
    assert all("\nhello\n" in output for output in printed("kcat"))


def on_this_machine(printed: Callable[[str], list[str]]) -> None:
    """Who reads again as the page says, before or after a broker is lost, sees the records and not `0 records`."""
    assert [output.splitlines()[-1] for output in printed("first_records.py")] == ["1000 records"] * 4
    assert all("broker 1 is down" in output for output in printed("local kill"))
    assert all(output.endswith("\nhello\n") for output in printed("kcat"))


def first_spark_job(printed: Callable[[str], list[str]]) -> None:
    assert all("\n2000\n" in output for output in printed("show("))


CHECKS = {
    "README.md": readme,
    "docs/start/first-spark-job.md": first_spark_job,
    "docs/start/on-this-machine.md": on_this_machine,
}


@pytest.mark.extended
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=NEEDS.get(page, [])) for page in PAGES if page not in OTHERWISE]
)
def test_every_block_of_a_page_runs_as_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")  # the name of the machine leads to a network that is not there
    monkeypatch.delenv(RANGE_VARIABLE, raising=False)  # the ports of the run's process; a page has a network of its own
    outputs = run_page(page, tmp_path)
    code = {block.line: block.code for block in blocks_of((ROOT / page).read_text())}

    def printed(part: str) -> list[str]:
        """The outputs of the blocks that have `part` in their code."""
        return [output for line, times in outputs.items() if part in code[line] for output in times]

    CHECKS[page](printed)


def test_every_reason_stands_above_a_block() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert len(REASON.findall(text)) == sum(bool(block.reason) for block in blocks_of(text)), page


def test_what_stands_in_for_a_block_is_for_a_block_of_a_page() -> None:
    codes = {block.code for page in PAGES for block in blocks_of((ROOT / page).read_text())}
    assert set(STAND_INS) <= codes
    assert set(OTHERWISE) | set(CHECKS) == set(PAGES)


def test_the_page_prints_the_example_as_it_is() -> None:
    example = (ROOT / "examples" / "first_records.py").read_text()
    assert f"```python\n{example}```" in (ROOT / "docs/start/on-this-machine.md").read_text()
