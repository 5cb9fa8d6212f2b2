"""Agents: the objects with which a user acts, stores transitions and learns."""
