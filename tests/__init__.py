"""The tests, with the private servers they use and the runner behind `make test`."""
