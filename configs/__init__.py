"""The settings: YAML groups for Hydra, and the typed tree that they fill."""
