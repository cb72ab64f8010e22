"""What sample tasks write, so that a test can count what really happened."""

from django.db import models


class Note(models.Model):
    """A line that may belong to a job; the foreign key is a real one, with its lock."""

    text = models.TextField()
    job = models.ForeignKey("jobqueue.Job", on_delete=models.PROTECT, null=True, related_name="+")

    def __str__(self) -> str:
        return self.text


class Effect(models.Model):
    """That something was done. Not unique: doing it twice shows as two rows."""

    key = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.key
