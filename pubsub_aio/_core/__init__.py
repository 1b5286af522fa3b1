"""Decisions: what to lease, renew, send and retry. Told the time, they never wait or send."""
