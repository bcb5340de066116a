"""The table of a pod's fields is that of the Kubernetes client."""

from __future__ import annotations

from pathlib import Path

from ottla_documents import pod_fields
from tests.documents.pod_fields import rendered


def test_the_table_has_the_fields_of_the_official_client() -> None:
    written = Path(pod_fields.__file__).read_text(encoding="utf-8")
    assert written == rendered(), "python -m tests.documents.pod_fields"
