"""Management of the demo site."""
