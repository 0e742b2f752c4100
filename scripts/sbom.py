"""sbom.py PYTHON LOCK FILE: write and validate the SBOM (SPDX 2.3, JSON) of the project with the packages of a lock.

Licenses and dependencies are from the metadata of the packages that PYTHON has installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from license_expression import ExpressionError, get_spdx_licensing
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    Package,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.writer.write_anything import write_file

PROJECT: Final = "frameworkcontroller"
DOCUMENT: Final = "SPDXRef-DOCUMENT"
METADATA: Final = """
import importlib.metadata, json
print(json.dumps([
    [one.name, one.version, one.metadata["License-Expression"] or one.metadata["License"], one.requires or []]
    for one in importlib.metadata.distributions()
]))
"""


def license_of(text: str | None) -> Any:
    """Return the declared license, if it is an SPDX expression."""
    try:
        found = get_spdx_licensing().parse(text or "", validate=True)
    except ExpressionError:
        found = None
    return SpdxNoAssertion() if found is None else found


def reference(name: str) -> str:
    return f"SPDXRef-{name}"


def build(python: str, lock: Path, name: str) -> Document:
    """Build the document."""
    output = subprocess.run([python, "-c", METADATA], capture_output=True, check=True).stdout
    installed: dict[str, Any] = {canonicalize_name(one[0]): one for one in json.loads(output)}
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))
    versions = {PROJECT: installed[PROJECT][1], **locked}
    packages, relationships = [], [Relationship(DOCUMENT, RelationshipType.DESCRIBES, reference(PROJECT))]
    for package, version in versions.items():
        _, there, license_text, requires = installed.get(package, [package, version, None, []])
        if there != version:
            sys.exit(f"sbom: {package} {there} is installed, but {version} is locked")
        url = ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", f"pkg:pypi/{package}@{version}")
        packages.append(
            Package(
                spdx_id=reference(package),
                name=package,
                version=version,
                download_location=SpdxNoAssertion(),
                files_analyzed=False,
                license_declared=license_of(license_text),
                external_references=[url],
            )
        )
        needed = {canonicalize_name(Requirement(one).name) for one in requires} & versions.keys() - {package}
        relationships += [
            Relationship(reference(package), RelationshipType.DEPENDS_ON, reference(one)) for one in sorted(needed)
        ]
    creation = CreationInfo(
        spdx_version="SPDX-2.3",
        spdx_id=DOCUMENT,
        name=name,
        document_namespace=f"https://spdx.org/spdxdocs/{name}-{versions[PROJECT]}",
        creators=[Actor(ActorType.TOOL, "sbom.py")],
        created=datetime.now(UTC).replace(microsecond=0, tzinfo=None),
    )
    return Document(creation, packages, relationships=relationships)


def main(python: str, lock: Path, target: Path) -> None:
    """Write the document. Raises ValueError if it is invalid."""
    document = build(python, lock, target.name.partition(".")[0])
    write_file(document, str(target), validate=True)
    print(f"{target}: {len(document.packages)} packages")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
