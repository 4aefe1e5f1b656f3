"""Decisions without effects: what to send, what a failure means, when to try again."""
