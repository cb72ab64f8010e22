"""How fast the queue is, beside a floor without any queue library, in one run on one machine."""
