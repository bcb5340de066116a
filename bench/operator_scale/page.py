"""docs/reference/scale.md: what one operator serves, as it was measured, and the commands that measure it.

The page has two sections, each as the last run of its own command wrote it: `write` replaces one and leaves the other.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from bench.operator_scale.measurement import BROKERS, REPLICAS, PassTimes, ScaleFigures

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scale.md"
TITLE = """# Scale

Figures of the operator. Each section is as the last run of its command wrote it.
"""
TOPICS_TITLE, ROLL_TITLE = "Many topics", "A roll of a fleet"
TITLES = (TOPICS_TITLE, ROLL_TITLE)
"""Of the sections, in their order."""
TOPICS = 10_000
TARGETS = {"ready_s": 300.0, "rss_mib": 200.0, "pass_ms": 200.0, "writes_at_rest": 0}


_TITLES = {
    "ready_s": "the time until all are Ready",
    "rss_mib": "the memory",
    "pass_ms": "the time of a reconciliation that finds nothing",
    "writes_at_rest": "no writes at rest",
}


def missed(figures: ScaleFigures, times: PassTimes) -> list[str]:
    """The targets that a run has missed, by name."""
    found = {
        "ready_s": figures.ready_s,
        "rss_mib": figures.rss_peak_mib,
        "pass_ms": times.median_ms,
        "writes_at_rest": figures.writes_at_rest + figures.writes_after_restart + times.writes,
    }
    return [name for name, most in TARGETS.items() if found[name] > most]


def write(title: str, text: str) -> None:
    """Replaces one section of the page."""
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), title, text), encoding="utf-8")


def with_section(page: str, title: str, text: str) -> str:
    """The page with another text in one of its sections.

    >>> print(with_section(with_section("", ROLL_TITLE, "fast"), TOPICS_TITLE, "many").removeprefix(TITLE).strip())
    ## Many topics
    <BLANKLINE>
    many
    <BLANKLINE>
    ## A roll of a fleet
    <BLANKLINE>
    fast
    """
    sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    sections[title] = text
    return TITLE + "".join(f"\n## {name}\n\n{sections[name].strip()}\n" for name in TITLES if name in sections)


def text(figures: ScaleFigures, times: PassTimes) -> str:
    """The section of many topics."""
    topics = f"{figures.topics:,}".replace(",", " ")
    cpu = figures.cpu_s
    total = sum(cpu.values())
    rows = [
        (f"from the first document to {topics} KafkaTopics Ready", f"{figures.ready_s:.0f} s", "300 s"),
        ("of that, until the last document was applied", f"{figures.applied_s:.0f} s", ""),
        ("processor time until then: the fleet", f"{cpu['fleet']:.0f} s", ""),
        ("… the operator", f"{cpu['operator']:.0f} s", ""),
        ("… the API server and etcd", f"{cpu['Kubernetes']:.0f} s", ""),
        ("the shortest time that these processors could take for it", f"{total / figures.cores:.0f} s", ""),
        *(
            [("the same fleet creates the same topics without Kubernetes", f"{figures.fleet_alone_s:.0f} s", "")]
            if figures.fleet_alone_s
            else []
        ),
        ("writes of the operator until all are Ready", f"{figures.writes_to_ready:,}".replace(",", " "), ""),
        (f"writes in {figures.rest_s:.0f} s at rest, the Lease apart", str(figures.writes_at_rest), "0"),
        ("writes after the operator was killed and started again", str(figures.writes_after_restart), "0"),
        ("processor time of the operator at rest", f"{figures.cpu_percent_at_rest:.1f} % of a core", ""),
        ("resident memory of the operator (highest)", f"{figures.rss_mib:.0f} MiB ({figures.rss_peak_mib:.0f} MiB)",
         "200 MiB"),
        ("… after a restart", f"{figures.rss_after_restart_mib:.0f} MiB", ""),
        (f"a reconciliation of {times.brokers} brokers that finds nothing (worst of {times.passes}, processor time)",
         f"{times.median_ms:.0f} ms ({times.worst_ms:.0f} ms, {times.cpu_ms:.0f} ms)", "200 ms"),
    ]  # fmt: skip
    lines = [
        f"What one operator serves: {topics} KafkaTopics of one partition and {REPLICAS} replicas, {BROKERS} brokers.",
        "`python -m bench.operator_scale --page` measures it and writes this section; so does",
        "`python -m bench --scenario operator`. The API server, etcd, ZooKeeper, brokers and operator are processes of",
        "one machine; the operator is the product's, but for the addresses of the brokers.",
        "",
        f"Measured on {datetime.now(UTC):%Y-%m-%d} on {figures.cores} cores whose load average was "
        f"{figures.load:.0f} when the run began. "
        + (
            "Other programs used them then: the times may be longer than on an idle machine, the processor times, the "
            "memory and the counts are not."
            if figures.load > figures.cores
            else "Nothing else ran."
        ),
        "",
        "| figure | measured | target |",
        "|---|---|---|",
        *(f"| {name} | {value} | {target} |" for name, value, target in rows),
        "",
        _verdict(missed(figures, times), figures),
        *_of_a_smaller_run(figures),
        "",
        "At rest the operator looks at every topic once in 45 s, for changes by others; that is most of its processor",
        "time there.",
    ]
    return "\n".join(lines) + "\n"


def _of_a_smaller_run(figures: ScaleFigures) -> list[str]:
    """What a run with fewer topics than the targets are about cannot say, and what it lets expect."""
    if figures.topics >= TOPICS:
        return []
    each_s = sum(figures.cpu_s.values()) / figures.topics
    return [
        f"The targets are those of {TOPICS} topics; this run had fewer. It used"
        f" {each_s * 1000:.0f} ms of processor time for each topic; for {TOPICS} of them that would be"
        f" {each_s * TOPICS / figures.cores:.0f} s of {figures.cores} idle cores, if nothing grew with the number."
    ]


def _verdict(names: list[str], figures: ScaleFigures) -> str:
    if not names:
        return "Every target is met."
    shown = ", ".join(_TITLES[name] for name in names)
    if figures.load > figures.cores and {*names} <= {"ready_s", "pass_ms"}:
        return (
            f"Missed in this run: {shown}. Others used the machine; the processor times say what an idle one could do "
            "at best."
        )
    return f"Missed in this run: {shown}."
