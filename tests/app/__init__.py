"""A small app as a user of jobqueue would write it: models that sample tasks leave traces in."""
