"""The shared backbones: each file has one subclass of `flows.backbone.Backbone`, found by the name of the file."""
