"""What a type checker makes of an application's code. Checked by mypy, never run."""
