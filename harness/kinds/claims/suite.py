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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr, StringConstraints

from harness.core.errors import SuiteError, UserError, nearest
from harness.core.settings import Settings
from harness.core.trial import AnyTrial
from harness.planning.overrides import parse_only
from harness.planning.plan import Plan, Section
from harness.planning.problems import Problem, Where, raise_problems
from harness.planning.strict_yaml import Document
from harness.planning.suite import read_suite
from harness.planning.suite_base import GivenDevice, Planned, Suite, SuiteFile, resolve_device
from harness.planning.suite_model import Slug

Sentence = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


CHANGES = {"settings": "--set", "layers": "--layer", "seeds": "--seeds"}
"""Arguments of `SuiteFile.plan` that change a suite -> the option of the command line."""


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

    claims: Annotated[Mapping[Slug, Claim], Field(min_length=1)]

    _parts: dict[str, Suite] = PrivateAttr(default_factory=dict)

    def attach(self, document: Document, folder: Path | None, examined: bool) -> Self:
        """Keep the origin of the file, and read the suites of its claims."""
        super().attach(document, folder, examined)
        names: dict[str, str] = {}
        found: list[Problem] = []
        for label, claim in self.claims.items():
            source = claim.suite if folder is None else folder / claim.suite
            suite = None if examined else read_suite(source, examined=True)
            if not isinstance(suite, Suite):
                raise SuiteError(f"{document.name}: a claim is tested by trials, and suites of claims have none")
            self._parts[label] = suite
            first = names.setdefault(suite.suite, label)
            if first != label:
                message = f"{claim.suite} is called {suite.suite}, as is that of {first!r}"
                found.append(Where(("claims", label, "suite")).says(message))
        raise_problems(document, found)
        return self

    @property
    def parts(self) -> Sequence[Suite]:
        """The suites of the claims."""
        return tuple(self._parts.values())

    def plan(
        self, profile: str = "quick", device: GivenDevice = "auto", *, only: Sequence[str] = (), **changes: Any
    ) -> Planned:
        """Settle the trials of every claim; see `SuiteFile.plan`.

        `only` selects claims. If it selects a single one, the other changes are those of its suite.

        Raises:
            UserError: changes for more than one claim, or a profile that not all have.
        """
        if profile not in self.profile_names:
            raise UserError(
                f"suite {self.suite} has no profile {profile!r} in all of its claims; it has "
                f"{', '.join(self.profile_names)} (--profile NAME)"
            )
        selected = _selected(only, list(self.claims))
        options = [option for name, option in CHANGES.items() if changes.get(name)]
        if len(selected) != 1 and options:
            raise UserError(f"{options[0]}: changes the suite of one claim; say which: --only claim=NAME")
        unchanged = {name: value for name, value in changes.items() if name not in CHANGES}
        used = resolve_device(device) if changes.get("elsewhere") is None or device == "auto" else device
        sections, trials, picked = [], list[AnyTrial](), list[AnyTrial]()
        for label, suite in self._parts.items():
            part, own = suite.plan(profile, used, **(changes if selected == {label} else unchanged))
            about = self.claims[label].model_dump(exclude={"suite"})
            sections.append(Section(name=label, head=part.model_copy(update={"trials": ()}), **about))
            trials += part.trials
            picked += own if label in selected else ()
        heads = [section.head for section in sections]
        plan = Plan(
            suite=self.suite,
            kind=self.kind,
            title=self.title or self.suite,
            question=" ".join(self.question.split()),
            profile=profile,
            device=used,
            rows=tuple(dict.fromkeys(row for head in heads for row in head.rows)),
            columns=tuple(dict.fromkeys(column for head in heads for column in head.columns)),
            unsupported=any(head.unsupported for head in heads),
            trials=_in_order(trials),
            sections=tuple(sections),
        )
        return plan, _in_order(picked)


def _in_order(trials: Sequence[AnyTrial]) -> tuple[AnyTrial, ...]:
    """Return the trials with those that run alone last, as a run does them."""
    return tuple(sorted(trials, key=lambda trial: trial.alone))


def _selected(only: Sequence[str], known: list[str]) -> set[str]:
    names = parse_only(only, keys=("claim",))["claim"]
    for name in names:
        if name not in known:
            raise UserError(f"--only claim={name}: there is no such claim; {nearest(name, known)}")
    return set(names or known)
