"""The checks behind `check-layer`: is this module an invertible linear layer?"""
