"""Reads the files that `-f` names; what is wrong in them ends the command, a line for each problem."""

from __future__ import annotations

from pathlib import Path

from ottla.cli.messages import fail
from ottla_documents.documents import DocumentError, Documents, load_documents


def read_documents(files: list[Path]) -> Documents:
    """The documents of these files."""
    sources: list[tuple[str, str]] = []
    for path in files:
        try:
            sources.append((str(path), path.read_text(encoding="utf-8")))
        except IsADirectoryError:
            fail(f"-f {path}: is a directory; name the files in it, each with -f")
        except OSError as error:
            fail(f"-f {path}: {error.strerror}")
        except UnicodeDecodeError as error:
            fail(f"-f {path}: not text in UTF-8: {error.reason} at byte {error.start}")
    try:
        return load_documents(sources)
    except DocumentError as error:
        fail(str(error))
