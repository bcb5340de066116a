"""`ottla` and its help: what is wrong on a command line is one line, and help says what has to be typed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ottla.cli import main
from ottla_broker.config import BrokerConfig
from ottla_broker.config.properties import parse_properties
from ottla_documents.documents import load_documents

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"


class Command:
    """Runs `ottla` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, status: int) -> list[str]:
        """The lines that it writes to standard output and standard error."""
        self._monkeypatch.setattr(sys, "argv", ["ottla", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.main()
        written = self._capsys.readouterr()
        assert (ended.value.code or 0) == status, written
        return [*written.out.splitlines(), *written.err.splitlines()]


@pytest.fixture
def ottla(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("lcoal up", "ottla: No such command 'lcoal'. Did you mean 'local'? See: ottla --help"),
        (
            "zzz",
            "ottla: No such command 'zzz'. There are broker, disk, local, pipeline, zookeeper, operator. "
            "See: ottla --help",
        ),
        ("local upp", "ottla local: No such command 'upp'. Did you mean 'up'? See: ottla local --help"),
        (
            "local kill one",
            "ottla local kill: Invalid value for 'ID': 'one' is not a whole number. See: ottla local kill --help",
        ),
        ("local up", "ottla local up: Missing option '-f' / '--file'. See: ottla local up --help"),
        (
            "disk forget --broker x --dir d",
            "ottla disk forget: Invalid value for '--broker': 'x' is not a whole number. See: ottla disk forget --help",
        ),
        ("broker run", "ottla broker run: Missing argument 'SERVER.PROPERTIES'. See: ottla broker run --help"),
        (
            "pipeline run --name",
            "ottla: Option '--name' requires an argument. See: ottla --help",
        ),
        (
            "operator run --max-rolling-clusters some",
            "ottla operator run: Invalid value for '--max-rolling-clusters' (env var: 'OTTLA_MAX_ROLLING_CLUSTERS'): "
            "'some' is not a whole number. "
            "See: ottla operator run --help",
        ),
        (
            "local status --dat x",
            "ottla local status: No such option: --dat (Possible options: --data) See: ottla local status --help",
        ),
    ],
)
def test_what_is_wrong_on_a_command_line_is_one_line_that_says_where_help_is(
    ottla: Command, arguments: str, line: str
) -> None:
    (said,) = ottla(*arguments.split(), status=2)
    # Releases of the library differ in how they end the name of an option.
    assert re.sub(r"[.,;] ?(?=\(|See)|[() ]", "", said) == re.sub(r"[.,;] ?(?=\(|See)|[() ]", "", line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("operator release", "no Kubernetes: neither ~/.kube/config nor the service account of a pod; set KUBECONFIG"),
        ("operator run --broker-image i", "no Kubernetes: neither ~/.kube/config nor the service account of a pod; set "
         "KUBECONFIG"),
        ("operator run", "--broker-image (OTTLA_BROKER_IMAGE): name the image that brokers run. On Kubernetes the "
         "chart sets it; outside of a cluster: KUBECONFIG=~/.kube/config ottla operator run --broker-image ottla:0.1"),
        ("local up -f .", "-f .: is a directory; name the files in it, each with -f"),
        ("local up -f absent.yaml", "-f absent.yaml: No such file or directory"),
        ("pipeline validate -f absent.yaml", "-f absent.yaml: No such file or directory"),
        (f"pipeline validate -f {MANIFESTS / 'cluster.yaml'}", f"no KafkaPipeline in {MANIFESTS / 'cluster.yaml'}; "
         "a KafkaCluster runs with `ottla local up -f FILE`"),
        (f"broker run {MANIFESTS / 'cluster.yaml'}", f"{MANIFESTS / 'cluster.yaml'} is YAML, not a properties file: "
         f"`ottla local up -f {MANIFESTS / 'cluster.yaml'}` runs documents"),
        ("broker run absent", "absent: No such file or directory"),
        ("disk forget --broker 1 --dir d --bootstrap-server nobody", "--bootstrap-server nobody: write HOST:PORT"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_that_says_what_to_do(
    ottla: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: str, line: str
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("OTTLA_BROKER_IMAGE", raising=False)
    monkeypatch.setattr("kubernetes.aio.config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    assert ottla(*arguments.split(), status=1) == [line]


def test_a_kubeconfig_that_cannot_be_used_is_named(
    ottla: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    said = ottla("operator", "release", status=1)
    assert said == [f"no Kubernetes: KUBECONFIG is {path}, and there is no such file"]
    path.write_text("a: [")
    (said_of_yaml,) = ottla("operator", "release", status=1)
    assert said_of_yaml.startswith(f"no Kubernetes: {path} cannot be used: while parsing")


COMMANDS = [
    (), ("local",), ("local", "up"), ("local", "status"), ("local", "kill"), ("local", "down"), ("disk",),
    ("disk", "forget"), ("broker",), ("broker", "run"), ("operator",), ("operator", "run"), ("operator", "release"),
    ("pipeline",), ("pipeline", "run"), ("pipeline", "status"),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_fits_into_80_columns_and_cuts_nothing_that_has_to_be_typed(
    ottla: Command, command: tuple[str, ...]
) -> None:
    shown = ottla(*command, "--help", status=0)
    assert all(len(line) <= 80 for line in shown)
    text = "\n".join(shown)
    assert not re.search(r"-[a-z]*…|[A-Z_]{3,}…|[─│╭]|<str>", text)


def test_help_names_the_extras_with_their_brackets(ottla: Command) -> None:
    text = " ".join(" ".join(ottla("--help", status=0)).split())
    assert "needs the extra ottla[pipeline]" in text
    assert "needs the extra ottla[operator]" in text


def test_help_of_the_operator_has_every_variable(ottla: Command) -> None:
    text = "\n".join(ottla("operator", "run", "--help", status=0))
    for name in ("BROKER_IMAGE", "ZOOKEEPER_IMAGE", "IMAGE_PULL_POLICY", "WATCH_NAMESPACES", "MAX_ROLLING_CLUSTERS"):
        assert f"OTTLA_{name}" in text


def test_help_of_local_has_documents_that_are_valid(ottla: Command) -> None:
    shown = ottla("local", "--help", status=0)
    begin = next(index for index, line in enumerate(shown) if "apiVersion" in line)
    end = next(index for index, line in enumerate(shown) if index > begin and not line.strip())
    documents = load_documents([("help", "\n".join(line[2:] for line in shown[begin:end]))])
    assert [one.name for one in documents.clusters] == [one.cluster for one in documents.topics] == ["orders"]


def test_help_of_broker_has_a_file_with_which_a_broker_starts(ottla: Command) -> None:
    shown = ottla("broker", "--help", status=0)
    begin = next(index for index, line in enumerate(shown) if "broker.id=" in line)
    end = next(index for index, line in enumerate(shown) if index > begin and not line.strip())
    values = parse_properties("\n".join(line[2:] for line in shown[begin:end]))
    config = BrokerConfig.from_mapping(values)
    assert config.unknown_keys == () and config.http_listener == ("127.0.0.1", 8080)
    assert values.keys() == parse_properties((MANIFESTS / "server.properties").read_text()).keys()
