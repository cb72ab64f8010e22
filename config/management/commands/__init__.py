"""Commands of the demo site."""
