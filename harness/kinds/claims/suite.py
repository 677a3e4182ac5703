"""Suites of kind claims: sentences of a publication, each with a suite of its own that tests it.

    suite: claims
    kind: claims
    title: ...
    claims:
      half-the-parameters:
        claim: the sentence
        where: its place in the publication
        test: what is done about it
        judge: parameters            # of harness.kinds.claims.judges
        suite: claims/parameters.yaml   # beside this file; it can be run by itself as well

One run does the trials of all of them; the report has a section for each claim, with what its judge found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError

from harness.core.errors import UserError, nearest
from harness.core.settings import Settings
from harness.core.trial import AnyTrial
from harness.planning.cluster import Cluster
from harness.planning.overrides import parse_only
from harness.planning.plan import Plan, Section, count_trials, plan_run, resolve_device
from harness.planning.strict_yaml import Document
from harness.planning.suite import find_document, load_suite, read_suite, validate_suite
from harness.planning.suite_errors import Finding, findings, raise_faults
from harness.planning.suite_model import Slug, Suite

KIND = "claims"
Sentence = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class Claim(Settings):
    """One section of the report."""

    claim: Sentence
    where: Sentence
    test: Sentence
    judge: Slug
    suite: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_/-]+\.yaml$")]


class ClaimsFile(Settings):
    """The file."""

    suite: Slug
    kind: Literal["claims"]
    title: Sentence
    question: str = ""
    cluster: Annotated[Cluster, BeforeValidator(lambda value: {} if value is None else value)] = Cluster()
    claims: Annotated[dict[Slug, Claim], Field(min_length=1)]


@dataclass(frozen=True)
class Claims:
    """A file of claims and the suites that it names.

    Attributes:
        file: what the file says.
        suites: claim -> its suite.
    """

    file: ClaimsFile
    suites: Mapping[str, Suite]

    @property
    def profiles(self) -> list[str]:
        """Those that every claim's suite has."""
        first, *others = self.suites.values()
        return [name for name in first.profiles if all(name in other.profiles for other in others)]

    def names(self, profile: str | None) -> list[str]:
        """All of them, or the one that is asked for.

        Raises:
            UserError: not every claim has it.
        """
        if profile is None:
            return self.profiles
        if profile not in self.profiles:
            raise UserError(
                f"suite {self.file.suite} has no profile {profile!r} in all of its claims; it has "
                f"{', '.join(self.profiles)} (--profile NAME)"
            )
        return [profile]


def is_claims(source: str) -> bool:
    """Whether a suite file is of this kind; a file that cannot be read is not."""
    try:
        document, _ = find_document(source)
    except UserError:
        return False
    return isinstance(document.value, dict) and document.value.get("kind") == KIND


def read_claims(source: str) -> ClaimsFile:
    """What the file itself says.

    Raises:
        SuiteError: with every fault, each with its place.
    """
    return _read(source)[0]


def load_claims(source: str, *, shapes: bool = False) -> Claims:
    """Read the file and every suite that it names.

    Args:
        source: a path, or the name of a packaged suite.
        shapes: whether to build every layer on every shape, too (see `validate_suite`).

    Raises:
        SuiteError: of the first file that has faults, with all of its.
    """
    return _with_suites(source, partial(validate_suite if shapes else load_suite, examined=True))


def outline(source: str) -> Claims:
    """As `load_claims`, with a look at the structure of the files alone (and without torch)."""
    return _with_suites(source, read_suite)


def _with_suites(source: str, load: Callable[[str | Path], Suite]) -> Claims:
    file, document, folder = _read(source)
    suites, found, names = {}, [], dict[str, str]()
    for label, claim in file.claims.items():
        suites[label] = load(claim.suite if folder is None else folder / claim.suite)
        other = names.setdefault(suites[label].suite, label)
        if other != label:
            place = ("claims", label, "suite")
            found.append(Finding(place, f"{claim.suite} is called {suites[label].suite}, as is that of {other!r}"))
    raise_faults(document.name, [finding.fault(document) for finding in found])
    return Claims(file, suites)


def _read(source: str) -> tuple[ClaimsFile, Document, Path | None]:
    document, folder = find_document(source)
    raise_faults(document.name, document.faults)
    try:
        file = ClaimsFile.model_validate(document.value)
    except ValidationError as error:
        raise_faults(document.name, [finding.fault(document) for finding in findings(error, ClaimsFile)])
        raise
    return file, document, folder


def plan_claims(
    claims: Claims,
    profile: str,
    device: Literal["auto", "cpu", "cuda"],
    *,
    only: Sequence[str] = (),
    settings: Sequence[str] = (),
    layers: Sequence[str] = (),
    seeds: int | None = None,
    jobs: int | None = None,
    elsewhere: int | None = None,
) -> tuple[Plan, tuple[AnyTrial, ...]]:
    """Settle the trials of every claim; see `harness.planning.plan.plan_run` for the arguments.

    `only` picks claims. Where it picks a single one, `settings`, `layers` and `seeds` change that one's suite.

    Raises:
        UserError: changes for more than one claim, or a profile that not all have.
    """
    claims.names(profile)
    wanted = _picked(only, list(claims.suites))
    if len(wanted) != 1 and (settings or layers or seeds is not None):
        option = "--set" if settings else "--layer" if layers else "--seeds"
        raise UserError(f"{option}: changes the suite of one claim; say which: --only claim=NAME")
    changes: dict[str, Any] = {"settings": settings, "layers": layers, "seeds": seeds}
    used = resolve_device(device) if elsewhere is None or device == "auto" else device
    sections, trials, picked = [], list[AnyTrial](), list[AnyTrial]()
    for label, suite in claims.suites.items():
        changed = changes if label in wanted and len(wanted) == 1 else {}
        part, own = plan_run(suite, profile, used, jobs=jobs, elsewhere=elsewhere, **changed)
        claim = claims.file.claims[label]
        about = {"name": label, "claim": claim.claim, "where": claim.where, "test": claim.test, "judge": claim.judge}
        sections.append(Section.model_validate(about | {"head": part.model_copy(update={"trials": ()})}))
        trials += part.trials
        picked += own if label in wanted else ()
    heads = [section.head for section in sections]
    plan = Plan(
        suite=claims.file.suite,
        kind="claims",
        title=claims.file.title,
        question=" ".join(claims.file.question.split()),
        profile=profile,
        device=used,
        rows=tuple(dict.fromkeys(row for head in heads for row in head.rows)),
        columns=tuple(dict.fromkeys(column for head in heads for column in head.columns)),
        unsupported=any(head.unsupported for head in heads),
        trials=_in_order(trials),
        sections=tuple(sections),
    )
    return plan, _in_order(picked)


def count_claims(claims: Claims, profile: str) -> int:
    """The number of trials of a profile."""
    return sum(count_trials(suite, profile) for suite in claims.suites.values())


def _in_order(trials: Sequence[AnyTrial]) -> tuple[AnyTrial, ...]:
    """Runtime trials last, as a run does them."""
    return tuple(sorted(trials, key=lambda trial: trial.alone))


def _picked(only: Sequence[str], known: list[str]) -> set[str]:
    wanted = parse_only(only, keys=("claim",)).claim
    for name in wanted:
        if name not in known:
            raise UserError(f"--only claim={name}: there is no such claim; {nearest(name, known)}")
    return set(wanted or known)
