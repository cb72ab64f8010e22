"""Tests with real worker processes, which are killed, stopped, cut off and told to go."""
