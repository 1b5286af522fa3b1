"""Bytes on the wire: no policy, no retry decisions."""
