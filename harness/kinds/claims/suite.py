"""Suites of kind claims: sentences of a publication, each with a suite of its own that tests it.

    suite: claims
    kind: claims
    title: ...
    claims:
      half-the-parameters:
        claim: the sentence
        where: its place in the publication
        test: how it is tested
        judge: parameters            # of harness.kinds.claims.judges.JUDGES
        suite: claims/parameters.yaml   # beside this file; it can be run by itself as well

One run does the trials of all of them; the report has a section for each claim, with the finding of its judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, StringConstraints

from harness.core.settings import Settings
from harness.planning.suite import SuiteFile
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

    @property
    def part_files(self) -> Mapping[str, str]:
        """The files of the claims' suites."""
        return {label: claim.suite for label, claim in self.claims.items()}

    def about(self, label: str) -> dict[str, Any]:
        """Return the claim and its test."""
        return self.claims[label].model_dump(exclude={"suite"})
