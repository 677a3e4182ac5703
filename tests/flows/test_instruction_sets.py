"""The compiled operators with narrower instructions than the processor's widest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from layers.kernels import load as kernels

FLOWS = Path(__file__).parent
LAYERS = FLOWS.parent / "layers"
FILES = [
    *(FLOWS / f"test_{name}.py" for name in ("affine", "coupling_networks")),
    *(LAYERS / "linalg" / f"test_{name}.py" for name in ("mixing", "circular_convolution", "solve_rows")),
    LAYERS / "test_emerging_kernel.py",
    LAYERS / "test_recurrence.py",
]
CHOSEN = (
    "(compiled or circular) and (sizes or equal or ends_of_the_range or single_precision)"
    " or test_emerging_kernel and"
    " (forward or strides or depend_on_its_batch or no_more_than_twice or those_of_plain_torch)"
    " or test_recurrence and (both_scans or no_more_than_twice)"
)


@pytest.mark.system
@pytest.mark.parametrize(("capability", "instructions"), [("avx2", "avx2"), ("default", "portable")])
def test_other_instruction_sets(capability, instructions):
    """Run some tests of the operators again, where the processor has wider instructions."""
    if kernels.backend().instructions in (None, instructions, "portable"):
        return  # the other tests use them, or there are no kernels
    script = f"""
import pytest, sys
from layers.kernels import load as kernels
assert kernels.backend().instructions == {instructions!r}, kernels.backend()
options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", "-k", {CHOSEN!r}]
sys.exit(pytest.main([*options, *{list(map(str, FILES))!r}]))
"""
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
