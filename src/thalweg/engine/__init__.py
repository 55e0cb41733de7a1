"""Runs a recipe here: reference.py is the specification, fast.py is what you use."""
