"""Memory for long requests: used once, it is used again."""

from __future__ import annotations

KEPT = 4 * 2**20


def keep_memory() -> None:
    """Have the process keep the memory of requests for the next ones.

    The C library of Linux gives free memory at the end of its heap back to the system and asks for
    it again a moment later; that the system clears it each time is a twentieth of what a message
    costs to publish. It keeps twice as much as the largest block that it has ever seen freed, up to
    32 MiB (`M_MMAP_THRESHOLD` in mallopt(3)), unless it was told otherwise: so it sees one, of
    which no page is touched. Elsewhere nothing comes of it.
    """
    bytes(KEPT)
