"""Principal mapping rules: those of Apache Kafka's documentation and of its own tests, and what is refused."""

from __future__ import annotations

import pytest

from ottla_broker.security.principals import NoRuleMatches, Principal, PrincipalMapping

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("", DUKE, DUKE),
        ("DEFAULT", DUKE, DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", DUKE, "DUKE"),
        (
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
            "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
            "duke@sme",
        ),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "cn=Duke,ou=SME", "duke"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=Duke,ou=JavaSoft,dc=sun,dc=com", "DUKE@JAVASOFT"),
        ("RULE:^CN=none/x/,RULE:^CN=(D.*?),.*$/$1/ ,DEFAULT", DUKE, "Duke"),
        ("RULE:^CN=none/x/\n DEFAULT", DUKE, DUKE),
        (r"RULE:^CN=(\w+),.*$/svc\/$1/", DUKE, "svc/Duke"),
        (r"RULE:^CN=(\w+),.*$/\$1 $1 $7/", DUKE, "$1 Duke $7"),
        ("RULE:CN=|,OU=.*//", "CN=", ""),
        (r"RULE:^CN=(\w+)$/$1/,DEFAULT", "CN=Zlín", "CN=Zlín"),
        ("RULE:^.*$/all,of\\/them/", DUKE, "all,of/them"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(rules: str, name: str, principal: str) -> None:
    assert PrincipalMapping(rules).name(name) == principal


def test_a_name_that_no_rule_matches_has_no_principal() -> None:
    with pytest.raises(NoRuleMatches, match="matches 'CN=a'"):
        PrincipalMapping("RULE:^OU=.*$/x/").name("CN=a")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("deFAULT", "'deFAULT' is neither DEFAULT nor RULE:"),
        ("RULE:^CN=(.*?)", "is neither DEFAULT nor RULE:"),
        ("RULE:^CN=(.*?)/$1/X", "is neither DEFAULT nor RULE:"),
        ("RULE:^CN=(.*?/$1/", "cannot be used"),
        (r"RULE:^CN=\p{Lu}.*$/x/", r"'\\\\p' of the pattern"),
        (r"RULE:^CN=(?<name>.*)$/$1/", "'\\(\\?<n' of the pattern"),
        (r"RULE:^CN=[a-z&&[^b]]$/x/", "'&&' of the pattern"),
        (r"RULE:^CN=\Qa.b\E$/x/", r"'\\\\Q' of the pattern"),
    ],
)
def test_rules_that_would_mean_something_else_are_refused(rules: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PrincipalMapping(rules)


def test_a_principal_is_printed_as_in_acls() -> None:
    assert str(Principal("User", DUKE)) == f"User:{DUKE}"
