"""The parts of butterfly layers: plans, stages of radix two and of any radix, routing."""
