"""The small models of the tests of the model."""

from tests.model.conftest import family, make_config, make_model

__all__ = ["family", "make_config", "make_model"]
