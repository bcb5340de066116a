"""A real API server and the parser say the same about examples and about generated documents."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from e2e.binaries import CHECKOUT
from e2e.kubernetes_api import Kubernetes, Refused
from ottla_operator.api.objects import KINDS
from ottla_operator.effects.kubernetes_api import path_of
from tests.documents.generated_documents import documents
from tests.documents.test_generated_documents import PARSERS, declared_problems

pytestmark = pytest.mark.kubernetes
DRY = "?dryRun=All&fieldValidation=Strict"
EXAMPLES = [path for folder in ("manifests", "examples") for path in sorted((CHECKOUT / folder).glob("*.yaml"))]


def _refusal(api: Kubernetes, document: dict[str, Any]) -> str:
    """Why the API server does not take a document; "" when it does."""
    try:
        api.request("POST", path_of(KINDS[document["kind"]], "default", None) + DRY, document)
    except Refused as refused:
        assert refused.status in (400, 422), refused
        return str(refused)
    return ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_right_for_both(api: Kubernetes, path: Any) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        assert _refusal(api, document) == "" and PARSERS[document["kind"]](document)[1] == []


def test_both_say_the_same_about_200_generated_documents(api: Kubernetes) -> None:
    """What the API server refuses, the parser refuses; what the types of the fields refuse, both do."""
    refused = 0
    for resource, document in documents(200):
        said = _refusal(api, document)
        if said:
            refused += 1
            assert PARSERS[resource.kind](document)[1], (said, document)
        else:
            assert declared_problems(resource, document) == [], document
    assert 40 < refused < 160
