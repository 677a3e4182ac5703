"""Suites -> plan -> trials -> records -> tables and figures."""
