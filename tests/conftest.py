"""What every test may ask for: a real ZooKeeper, a free port; and what happens to tests whose needs are not met.

Tests marked `java` need a Java runtime and the jars of scripts/fetch-jars.sh, tests marked `kcat` Debian's kcat, tests
marked `kerberos` what scripts/fetch-kerberos.sh fetches, tests marked `spark` Spark, tests marked `root` need root.
Where that is missing they are skipped, with a reason that names the script, so that pytest's summary counts them. With
OTTLA_TEST_ALL=1 (make test-all, CI) they fail instead: nothing goes untested unseen.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.run_report import in_drawn_order, pytest_addoption, pytest_terminal_summary

__all__ = ["pytest_addoption", "pytest_terminal_summary"]

# However long an example takes or is drawn: a machine that has no time for a test is no mistake of it. In CI, which
# hypothesis knows by its variable, the examples are the same every time.
settings.register_profile("any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# `ottla.testing` brings the whole broker: imported where it is needed, so that the tests of one package run
# without all the others.
if TYPE_CHECKING:
    from ottla.local.zookeeper_server import ZooKeeperServer


@functools.cache
def why_java_tests_cannot_run() -> str:
    """The reason, or "" when they can."""
    from ottla.local.jars import MissingRequirement, find_java, kafka_class_path, zookeeper_class_path

    try:
        find_java()
        kafka_class_path()
        zookeeper_class_path()
    except MissingRequirement as missing:
        return str(missing)
    return ""


@functools.cache
def why_spark_tests_cannot_run() -> str:
    """The reason, or "" when they can."""
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is missing: run scripts/setup-venv.sh --spark"
    return "" if shutil.which("javac") else "javac is missing: run scripts/install-system.sh"


def why_root_tests_cannot_run() -> str:
    """The reason, or "" when they can."""
    return "" if os.geteuid() == 0 else "needs root: run it as root, packages come from scripts/install-system.sh"


def why_kcat_tests_cannot_run() -> str:
    """The reason, or "" when they can."""
    return "" if shutil.which("kcat") else "kcat is missing: run scripts/install-system.sh (Debian: kcat)"


def why_kubernetes_tests_cannot_run() -> str:
    """The reason, or "" when they can."""
    from e2e.binaries import are_built

    return "" if are_built() else "Kubernetes' programs are not built: run scripts/build-kubernetes.sh (or make e2e)"


def why_kerberos_tests_cannot_run() -> str:
    """The reason, or "" when they can."""
    from tests import kdc

    return kdc.why_kerberos_tests_cannot_run()


REASONS: dict[str, Callable[[], str]] = {
    "java": why_java_tests_cannot_run,
    "kcat": why_kcat_tests_cannot_run,
    "kerberos": why_kerberos_tests_cannot_run,
    "kubernetes": why_kubernetes_tests_cannot_run,
    "root": why_root_tests_cannot_run,
    "spark": why_spark_tests_cannot_run,
}


EXTENDED = (
    "tests/bench/test_coordinators.py",
    "tests/beside",
    "tests/broker/config/test_beside_apache_kafka.py",
    "tests/broker/controller/acts/test_reassignments_with_apache_kafka.py",
    "tests/broker/controller/test_with_apache_kafka.py",
    "tests/broker/groups/consumer/test_assignors.py",
    "tests/broker/protocol/test_kafka_jar.py",
    "tests/broker/protocol/test_messages.py",
    "tests/broker/protocol/test_other_implementations.py",
    "tests/broker/server/edge/test_long_requests.py",
    "tests/broker/server/edge/test_many_partitions.py",
    "tests/broker/storage/cleaner/test_model.py",
    "tests/broker/storage/test_footprint.py",
    "tests/broker/transactions/test_two_phase_commit.py",
    "tests/compatibility",
    "tests/contract/test_coordination_equivalence.py",
    "tests/contract/test_workers_production.py",
    "tests/docs/test_start_pages.py",
    "tests/documents/test_generated_documents.py",
    "tests/fuzz",
    "tests/integration",
    "tests/kills",
    "tests/mixed",
    "tests/nemesis",
    "tests/operator/concerns/roll/test_batches.py",
    "tests/operator/concerns/test_broker_removal.py",
    "tests/operator/concerns/test_difference.py",
    "tests/operator/concerns/test_disk_drains.py",
    "tests/operator/concerns/test_ensemble_resize.py",
    "tests/operator/concerns/test_lost_claims.py",
    "tests/operator/concerns/test_maintenance.py",
    "tests/operator/concerns/test_pod_template.py",
    "tests/operator/concerns/test_resize_real_zookeeper.py",
    "tests/operator/concerns/test_super_user.py",
    "tests/operator/concerns/test_versions.py",
    "tests/operator/concerns/test_volume_growth.py",
    "tests/operator/concerns/test_zookeeper_files.py",
    "tests/operator/effects/test_log_dir_requests.py",
    "tests/operator/model_based",
    "tests/operator/real_api",
    "tests/operator/rebalancer/test_on_real_brokers.py",
    "tests/operator/rebalancer/test_planner.py",
    "tests/operator/runtime/test_cluster_task.py",
    "tests/operator/runtime/test_operator.py",
    "tests/operator/runtime/test_prerequisites.py",
    "tests/pipeline/reading/test_columns.py",
    "tests/pipeline/sink/test_delivery.py",
    "tests/pipeline/sink/test_exactly_once.py",
    "tests/scenarios",
    "tests/simulation/test_determinism.py",
    "tests/simulation/test_graceful_stop.py",
    "tests/simulation/test_loop.py",
    "tests/simulation/test_mutants.py",
)
"""What `make test` leaves out for the sake of time, and `make test-all` has; tests with Spark too, and those with the
marker `extended`."""

LONG = (
    "tests/beside/test_security.py::test_every_api",
    "tests/compatibility/test_compatibility.py::test_the_page_says_what_a_client_does[aiokafka]",
    "tests/compatibility/test_compatibility.py::test_the_page_says_what_a_client_does[confluent-kafka]",
    "tests/compatibility/test_compatibility.py::test_the_page_says_what_a_client_does[java-",
    "tests/compatibility/test_compatibility.py::test_the_page_says_what_a_client_does[kafka-python-",
    "tests/compatibility/test_compatibility.py::test_the_page_says_what_a_client_does[kcat]",
    "tests/compatibility/test_compatibility.py::test_the_page_says_what_a_client_does[platformatic]",
    "tests/compatibility/test_tls.py",
    "tests/integration/clients/test_connect.py::test_a_connector_goes_on_at_another_worker",
    "tests/integration/clients/test_kafka_0_8.py",
    "tests/integration/clients/test_local_restarts.py::test_a_fleet_of_processes_goes_down_and_up",
    "tests/integration/clients/test_sasl.py::test_a_wrong_password_and_an_unknown_user_are_refused_with_the_reason[aiokafka",
    "tests/integration/clients/test_sasl.py::test_a_wrong_password_and_an_unknown_user_are_refused_with_the_reason[kafka-python",
    "tests/integration/clients/test_sasl.py::test_a_wrong_password_and_an_unknown_user_are_refused_with_the_reason[kcat",
    "tests/integration/clients/test_sasl.py::test_records_come_back_as_they_were_sent[aiokafka",
    "tests/integration/clients/test_sasl.py::test_records_come_back_as_they_were_sent[kafka-python",
    "tests/integration/clients/test_sasl.py::test_records_come_back_as_they_were_sent[kcat",
    "tests/integration/test_local_commands.py::test_a_fleet_lives_below_a_path_with_odd_characters",
    "tests/integration/test_local_commands.py::test_disk_forget_gives_up_what_only_a_dead_disk",
    "tests/integration/test_local_commands.py::test_one_fleet_per_data_directory",
    "tests/integration/test_local_commands.py::test_status_says_which_broker_does_not_answer",
    "tests/integration/test_local_commands.py::test_two_fleets_of_one_machine",
    "tests/integration/test_local_commands.py::test_what_cannot_be_used_as_data_directory",
    "tests/integration/test_local_commands.py::test_with_processes_a_killed_broker",
    "tests/pipeline/reading/test_stream.py",
    "tests/pipeline/test_spark_sink_kills.py",
    "tests/simulation/test_determinism.py::test_a_seed_run_twice_in_one_process",
)
"""What `make test-all` leaves out for the sake of time, and `make test-all-long` has, as tests marked `long`."""

FIRST_LOOK = (
    "tests/integration/clients/test_every_client.py",
    "tests/integration/clients/test_java.py",
    "tests/integration/test_http.py",
)
"""One real fleet and one client of each kind: a part of it all the same. Spark's first look is the demo."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` does not import the modules of which it runs nothing."""
    if config.getoption("markexpr") != "not extended":
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    return (path.startswith(EXTENDED) and not any(one.startswith(path) for one in FIRST_LOOK)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("module_order")
    if seed is not None:
        items[:] = in_drawn_order(items, seed)
    for item in items:
        path = item.path.relative_to(item.config.rootpath).as_posix()
        if item.nodeid.startswith(LONG):
            item.add_marker(pytest.mark.long)
        is_extended = path.startswith(EXTENDED) or any(map(item.get_closest_marker, ("spark", "long")))
        if is_extended and not path.startswith(FIRST_LOOK):
            item.add_marker(pytest.mark.extended)
    if os.environ.get("OTTLA_TEST_ALL") == "1":
        return
    for item in items:
        for marker, why in REASONS.items():
            if item.get_closest_marker(marker) and why():
                item.add_marker(pytest.mark.skip(reason=why()))


def pytest_collection_finish() -> None:
    from tests.admin_clients import protect

    protect()


def pytest_runtest_setup(item: pytest.Item) -> None:
    logging.disable(logging.NOTSET)  # a run of the simulator in a test before may have silenced it for good
    drop_dead_log_handlers()
    if os.environ.get("OTTLA_TEST_ALL") != "1":
        return
    for marker, why in REASONS.items():
        if item.get_closest_marker(marker) and why():
            pytest.fail(f"OTTLA_TEST_ALL=1 and {why()}", pytrace=False)


def drop_dead_log_handlers() -> None:
    """A program that a test has run may have left a handler on a stream that was captured and is closed: each line of
    the log would be a traceback."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, logging.StreamHandler) and getattr(handler.stream, "closed", False):
            root.removeHandler(handler)


def pytest_configure(config: pytest.Config) -> None:
    """Each process of the run (pytest-xdist) has ports of its own: what one has chosen and not bound yet, or has given
    up while a broker of it restarts, no other takes."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker.startswith("gw"):
        from ottla.local.ports import RANGE_VARIABLE, searched

        ports, workers = searched(), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        if mine := ports[len(ports) * int(worker[2:]) // workers : len(ports) * (int(worker[2:]) + 1) // workers]:
            os.environ[RANGE_VARIABLE] = f"{mine[0]}-{mine[-1]}"


LONG_TEST_S = 30.0


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Names a long test at once: a run that is cut off should have said where its time went."""
    if report.duration >= LONG_TEST_S:
        print(f"\n{report.nodeid}: {report.when} took {report.duration:.0f} s", flush=True)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One real ZooKeeper 3.9 for the whole run (marker `java`). Tests take a chroot of their own in it.

    Sessions may be as short as one second.
    """
    from ottla.local.zookeeper_server import ZooKeeperServer

    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start(timeout_s=120)  # for a JVM to start, on a machine where much else does
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now."""
    from ottla.local.ports import free_port as find_free_port

    return find_free_port()
