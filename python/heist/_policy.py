"""When a block asks for another tile."""

from __future__ import annotations

from . import _native


class Policy:
    """When a block asks for another tile: ``greedy``, ``never``, ``max-steals(8)``,
    ``time-budget(100us)``, ..., combined with ``&``, ``|`` and ``~``.

    >>> Policy("max-steals(8)") & Policy("first-half")
    Policy('max-steals(8) & first-half')
    >>> Policy("max-steels(8)")
    Traceback (most recent call last):
    ValueError: ...
    """

    __slots__ = ("text",)

    def __init__(self, text: str | Policy) -> None:
        if not isinstance(text, (str, Policy)):
            raise TypeError(f"a policy is text, such as 'max-steals(8)'; given: {type(text).__name__}")
        #: As it is written in full.
        self.text: str = text.text if isinstance(text, Policy) else _native.policy(text)

    @staticmethod
    def all() -> list[tuple[str, str]]:
        """An example of every policy there is, and what it does."""
        return _native.policies()

    def __and__(self, other: Policy | str) -> Policy:
        return Policy(f"({self.text}) & ({Policy(other).text})")

    def __or__(self, other: Policy | str) -> Policy:
        return Policy(f"({self.text}) | ({Policy(other).text})")

    def __invert__(self) -> Policy:
        return Policy(f"!({self.text})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Policy({self.text!r})"
