"""What the long tests check signatures with: beartype, where an int is a float (PEP 484), as for
mypy."""

from beartype import BeartypeConf, beartype

typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))
