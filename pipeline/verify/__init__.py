"""Checks on a live server, over plain HTTP, that the same request gives the same bytes."""
