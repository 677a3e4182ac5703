"""The parts of butterfly layers: plans, factors of 2x2 matrices, stages of any radix, permutations."""
