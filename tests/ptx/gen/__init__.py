"""The tables behind the generated instruction tests; see ../make.py."""
