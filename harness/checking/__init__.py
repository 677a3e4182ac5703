"""The checks of `check-layer`: is this module an invertible linear layer?"""
