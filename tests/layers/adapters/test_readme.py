"""The example of the README: a butterfly in a flow of nflows."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[3] / "README.md"


@pytest.mark.filterwarnings("ignore")
def test_the_example_trains_the_layer():
    (code,) = re.findall(r"```python\n(import torch\nfrom nflows.*?)```", README.read_text(), re.S)
    torch.manual_seed(0)
    names = {}
    exec(code.replace("range(100)", "range(20)"), names)
    layer = names["flow"]._transform._transforms[0].layer
    assert names["loss"].item() < 20 and not torch.equal(layer.dense(), torch.eye(8))
