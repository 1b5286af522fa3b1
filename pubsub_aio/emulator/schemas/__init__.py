"""Schemas: what a topic's messages must look like, in revisions; see `registry`."""
