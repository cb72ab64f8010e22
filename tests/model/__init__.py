"""The state machine explored to the end: every interleaving of workers, repairers, people and Redis, within bounds."""
