"""The ids in Redis: the line, the sets, who pushes, and how they are brought to agree with the database."""
