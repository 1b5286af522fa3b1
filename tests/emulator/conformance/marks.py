"""Marks that say on which of the two servers a test runs, and what is expected of Google's."""

import pytest


def google_falls_short(how: str, *, hangs: bool = False) -> pytest.MarkDecorator:
    """Say how Google's emulator misses what its documentation promises.

    There the test must fail, so that we hear when a newer emulator is better. With `hangs`,
    where failing would mean waiting out a timeout, the test is left out instead.
    """
    return pytest.mark.falls_short(how=how, hangs=hangs)


def embedded_only(why: str) -> pytest.MarkDecorator:
    """Leave Google's emulator out, and say why."""
    return pytest.mark.falls_short(how=why, hangs=True)
