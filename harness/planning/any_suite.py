"""A suite of any kind, one of kind claims included, by its path or name."""

from __future__ import annotations

from typing import Any, Literal

from harness.core.trial import AnyTrial
from harness.kinds.claims.suite import count_claims, is_claims, load_claims, plan_claims, read_claims
from harness.planning.cluster import Cluster
from harness.planning.plan import Plan, count_trials, make_plan, plan_run
from harness.planning.suite import load_suite, read_suite, validate_suite


def plan_any(
    source: str, profile: str, device: Literal["auto", "cpu", "cuda"], **given: Any
) -> tuple[Plan, tuple[AnyTrial, ...]]:
    """The plan, and the trials that `--only` picks; see `plan_run` and `plan_claims` for what may be given."""
    if is_claims(source):
        return plan_claims(load_claims(source), profile, device, **given)
    return plan_run(load_suite(source), profile, device, **given)


def count_any(source: str, profile: str | None) -> dict[str, int]:
    """Profile -> how many trials it has, of all profiles or one; the file is checked as a whole.

    Raises:
        UserError: with every fault of the file, or for want of the profile.
    """
    if is_claims(source):
        claims = load_claims(source, shapes=True)
        return {name: count_claims(claims, name) for name in claims.names(profile)}
    if profile is not None:
        return {profile: len(make_plan(load_suite(source), profile, "cpu").trials)}
    suite = validate_suite(source)
    return {name: count_trials(suite, name) for name in suite.profiles}


def cluster_of_any(source: str) -> Cluster:
    """What a suite asks of a cluster."""
    return read_claims(source).cluster if is_claims(source) else read_suite(source).cluster
