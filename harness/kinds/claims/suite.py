"""Suites of kind claims: sentences of a publication, each with a suite of its own that tests it.

    suite: claims
    kind: claims
    title: ...
    claims:
      half-the-parameters:
        claim: the sentence
        where: its place in the publication
        test: how it is tested
        judge: parameters            # of harness.kinds.claims.report.JUDGES
        suite: claims/parameters.yaml   # beside this file; it can be run by itself as well

One run does the trials of all of them; the report has a section for each claim, with the finding of its judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PrivateAttr, StringConstraints

from harness.core.errors import SuiteError
from harness.core.settings import Settings
from harness.planning.problems import Problem, Where, raise_problems
from harness.planning.strict_yaml import Document
from harness.planning.suite import read_suite
from harness.planning.suite_base import Suite, SuiteFile
from harness.planning.suite_model import Slug

Sentence = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class Claim(Settings):
    """One section of the report.

    Attributes:
        claim: the sentence.
        where: its place in the publication.
        test: how it is tested.
        judge: the function that makes the verdict.
        suite: file of the suite that tests it, from the folder of this file.
    """

    claim: Sentence
    where: Sentence
    test: Sentence
    judge: Slug
    suite: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_/-]+\.yaml$")]


class ClaimsSuite(SuiteFile, kind="claims"):
    """A suite of claims, which joins the trials of their suites.

    Attributes:
        claims: the sections of the report, by name.
    """

    part_key: ClassVar[str | None] = "claim"

    claims: Annotated[Mapping[Slug, Claim], Field(min_length=1)]

    _parts: dict[str, Suite] = PrivateAttr(default_factory=dict)

    def attach(self, document: Document, folder: Path | None, examined: bool) -> Self:
        """Keep the origin of the file, and read the suites of its claims."""
        super().attach(document, folder, examined)
        names: dict[str, str] = {}
        problems: list[Problem] = []
        for label, claim in self.claims.items():
            source = claim.suite if folder is None else folder / claim.suite
            suite = None if examined else read_suite(source, examined=True)
            if not isinstance(suite, Suite):
                raise SuiteError(f"{document.name}: a claim is tested by trials, and suites of claims have none")
            self._parts[label] = suite
            first = names.setdefault(suite.suite, label)
            if first != label:
                message = f"{claim.suite} is called {suite.suite}, as is that of {first!r}"
                problems.append(Where(("claims", label, "suite")).says(message))
        raise_problems(document, problems)
        return self

    @property
    def parts(self) -> Mapping[str, Suite]:
        """The suites of the claims."""
        return self._parts

    def about(self, label: str) -> dict[str, Any]:
        """Return the claim and its test."""
        return self.claims[label].model_dump(exclude={"suite"})
