"""Short names of Kerberos principals are those of Apache Kafka, and rules that would fail are refused."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.local.jars import find_java, kafka_class_path
from ottla_broker.security.kerberos_rules import KerberosRules, NoShortName

REALM = "EXAMPLE"
SHORT = [
    ("DEFAULT", "alice@EXAMPLE", "alice"),
    ("DEFAULT", "kafka/b.example@EXAMPLE", "kafka"),
    ("DEFAULT", "alice", "alice"),
    ("DEFAULT", "Alice@EXAMPLE", "Alice"),
    ("RULE:[1:$1]", "alice@OTHER", "alice"),
    ("RULE:[1:$1@$0](.*@OTHER)s/@.*//,DEFAULT", "alice@OTHER", "alice"),
    ("RULE:[1:$1@$0](.*@OTHER)s/@.*//,DEFAULT", "alice@EXAMPLE", "alice"),
    ("RULE:[2:$1-$2](kafka-b[.]example)s/-.*//", "kafka/b.example@EXAMPLE", "kafka"),
    ("RULE:[2:$1.$2]s/[.]/_/", "kafka/b.example@EXAMPLE", "kafka_b.example"),
    ("RULE:[2:$1.$2]s/[.]/_/g", "kafka/b.example@EXAMPLE", "kafka_b_example"),
    ("RULE:[1:$1](A.*)s/a/x/g/L", "AlicA@EXAMPLE", "alica"),
    ("RULE:[1:$1]/L", "ALICE@EXAMPLE", "alice"),
    ("RULE:[1:$1]U", "alice@EXAMPLE", "ALICE"),
    ("RULE:[1:$1]s/^(.)(.*)$/$2$1/", "alice@EXAMPLE", "licea"),
    ("RULE:[1:svc-$1$0]", "alice@EXAMPLE", "svc-aliceEXAMPLE"),
    (r"RULE:[1:$1]s/a/\$/", "alice@EXAMPLE", "$lice"),
    ("RULE:[1:$1]s/l/$01/", "alice@EXAMPLE", "al1ice"),
    ("RULE:[1:$1](b.*),RULE:[2:$1],RULE:[1:other]", "alice@EXAMPLE", "other"),
    ("RULE:[1:$1]()", "@EXAMPLE", ""),
    (r"RULE:[1:$1](\w+),RULE:[1:none]", "čeněk@EXAMPLE", "none"),
    ("RULE:[9:$9],DEFAULT", "alice@EXAMPLE", "alice"),
]
NONE = [
    ("DEFAULT", "alice@OTHER", "matches 'alice@OTHER'"),
    ("RULE:[2:$1]", "alice@EXAMPLE", "matches 'alice@EXAMPLE'"),
    ("RULE:[1:$1@$0],DEFAULT", "alice@EXAMPLE", "makes 'alice@EXAMPLE' of 'alice@EXAMPLE'"),
    ("DEFAULT", "a/b/c@EXAMPLE", "'a/b/c@EXAMPLE' is malformed"),
    ("DEFAULT", "a@b@EXAMPLE", "malformed"),
    ("RULE:[1:$1@$0]()", "a@EXAMPLE", "matches"),
]
ESCAPED = [r"a\/b@EXAMPLE", r"a\@b@EXAMPLE", "a\u2028@EXAMPLE", "a\n@EXAMPLE"]
REFUSED = [
    ("default", "neither DEFAULT nor RULE"),
    ("", "neither DEFAULT nor RULE"),
    ("RULE:[1:$1", "neither DEFAULT nor RULE"),
    ("RULE:[:$1]", "neither DEFAULT nor RULE"),
    ("RULE:[1:$1]s/a/b", "neither DEFAULT nor RULE"),
    ("RULE:[1:$1]s/a/b/x", "neither DEFAULT nor RULE"),
    ("RULE:[1:$1]/LU", "neither DEFAULT nor RULE"),
    ("RULE:[1:$1]((a)b)", "neither DEFAULT nor RULE"),
    ("DEFAULT,RULE:[1:$1]s/[/b/", "'RULE:.*: the pattern .* cannot be used"),
]
REFUSED_BY_US = [
    ("RULE:[1:$2]", "names component 2 of 1"),
    ("RULE:[1:a$]", r"has a \$ without a number"),
    ("RULE:[1:$1]s/a/$1/", "names group 1 of 0"),
    ("RULE:[1:$1]s/a/$/", "without what belongs behind it"),
    ("RULE:[1:$1]s/a/\\/", "without what belongs behind it"),
    (r"RULE:[1:$1](\p{Lu})", "is not served"),
    ("RULE:[1:$1]s/(?<x>a)/b/", "is not served"),
]


OURS = "|".join(reason for _, reason in REFUSED_BY_US).replace("1 of 0", "").replace("2 of 1", "")
"""Why we refuse what Apache Kafka takes."""


@pytest.mark.parametrize(("rules", "principal", "expected"), SHORT)
def test_the_first_rule_that_matches_gives_the_short_name(rules: str, principal: str, expected: str) -> None:
    assert KerberosRules(rules.split(",")).short_name(principal, REALM) == expected


@pytest.mark.parametrize(("rules", "principal", "reason"), NONE)
def test_a_principal_without_a_short_name_has_the_reason(rules: str, principal: str, reason: str) -> None:
    with pytest.raises(NoShortName, match=reason):
        KerberosRules(rules.split(",")).short_name(principal, REALM)


@pytest.mark.parametrize("principal", ESCAPED)
def test_a_principal_with_a_character_that_is_escaped_has_none(principal: str) -> None:
    """Apache Kafka would take what stands before the escaped character for a component of its own."""
    with pytest.raises(NoShortName, match="has to be escaped"):
        KerberosRules(["RULE:[1:$1]", "RULE:[2:$1]"]).short_name(principal, REALM)


def test_without_a_default_realm_no_principal_is_of_it() -> None:
    with pytest.raises(NoShortName):
        KerberosRules(["DEFAULT"]).short_name("alice@EXAMPLE", "")


@pytest.mark.parametrize(("rules", "reason"), [*REFUSED, *REFUSED_BY_US])
def test_rules_that_cannot_be_used_are_refused(rules: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        KerberosRules(rules.split(","))


PIECES = [*"a$12[]:()/sgLU@.*\\ ", "RULE:[1:$1]", "RULE:[2:$1.$2]", "s/a/b/", "(a.*)", "DEFAULT", "$0", "[1:"]
PRINCIPALS = ["alice@EXAMPLE", "alice@OTHER", "ab/a.b@EXAMPLE", "a", "a/b/c@EXAMPLE", "@", "aA1@EXAMPLE"]


def outcome(rules: str, principal: str) -> str:
    """As `KerberosNames.java` prints it."""
    try:
        namer = KerberosRules(rules.split(","))
    except ValueError:
        return "refused"
    try:
        return "=" + base64.b64encode(namer.short_name(principal, REALM).encode()).decode()
    except NoShortName:
        return "none"


@given(st.text(max_size=20) | st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text(max_size=20))
def test_no_text_makes_it_raise_anything_else(rules: str, principal: str) -> None:
    outcome(rules, principal)
    outcome("RULE:[1:$1]", principal)


@pytest.mark.java
def test_apache_kafka_gives_the_same_names() -> None:
    """What it refuses we refuse; we also refuse what would fail there whenever it is used."""
    random = Random(138)
    drawn = ["".join(random.choices(PIECES, k=random.randrange(1, 7))) for _ in range(4000)]
    shaped = [f"RULE:[1:$1]{rule}" for rule in drawn[::2]]
    cases = [(rules, name) for rules, name, _ in (*SHORT, *NONE)] + [(rules, "alice@EXAMPLE") for rules, _ in REFUSED]
    cases += [(rules, random.choice(PRINCIPALS)) for rules in (*drawn, *shaped)]

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    done = subprocess.run(
        [find_java(), "-cp", kafka_class_path(), str(Path(__file__).with_name("KerberosNames.java"))],
        input="".join(f"{encoded(rules)}\t{encoded(name)}\n" for rules, name in cases),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(cases)
    for (rules, name), their in zip(cases, theirs, strict=True):
        our = outcome(rules, name)
        if our == "refused" and their != our:
            with pytest.raises(ValueError, match=OURS):
                KerberosRules(rules.split(","))
        else:
            assert our == their, (rules, name)
