"""Configurations for `accelerate launch --config_file`: how processes share the weights of one policy."""
