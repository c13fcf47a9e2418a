"""The statement of provenance: what was built, from which commit, and how (in-toto Statement v1, SLSA provenance v1).

It is not signed: the release workflow attests all files of the release, this one too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from releasing.checks import Commit

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://podium.dev/build-types/make-release/v1"
LOCAL_BUILDER = "https://podium.dev/builders/local"


@dataclass(frozen=True, slots=True)
class Build:
    """How a release was built.

    `parameters`: what the caller chose; `tools`: versions of the programs; `inputs`: paths below the checkout whose
    content decides about everything that is downloaded. `builder`: the address of the workflow, or empty.
    """

    commit: Commit
    source: str
    parameters: Mapping[str, Any]
    tools: Mapping[str, str]
    inputs: tuple[Path, ...]
    builder: str = ""


def statement(files: Iterable[Path], image: tuple[str, str], build: Build) -> dict[str, Any]:
    """Return the statement about these files and the image, which is given as name and digest."""
    name, digest = image
    algorithm, _, value = digest.partition(":")
    subjects = [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in sorted(files)]
    subjects.append({"name": name, "digest": {algorithm: value}})
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(build.parameters),
                "internalParameters": {"tools": dict(build.tools)},
                "resolvedDependencies": [
                    _source(build),
                    *({"name": path.name, "digest": {"sha256": sha256(path)}} for path in build.inputs),
                ],
            },
            "runDetails": {"builder": {"id": build.builder or LOCAL_BUILDER}},
        },
    }


def _source(build: Build) -> dict[str, Any]:
    described: dict[str, Any] = {"name": "source", "digest": {"gitCommit": build.commit.sha}}
    if build.source:
        described["uri"] = build.source
    if build.commit.changed:
        described["annotations"] = {"changedFiles": build.commit.changed}
    return described


def to_json(document: Mapping[str, Any]) -> str:
    """Return the text of a statement; equal ones have equal bytes."""
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
