"""The fault run: a site under load whose processes and servers are killed, stopped and cut for minutes, and afterwards
the whole history of every job is held against what was promised.

    python -m tests.chaos --seconds 180 --seed 7
"""
