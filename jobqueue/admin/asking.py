"""What a confirmation asks for: a reason, always; a number typed where much is at stake; and a verb's own options."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from jobqueue.actors import Actor
from jobqueue.admin import words
from jobqueue.admin.tokens import Frozen
from jobqueue.admin.verbs import Verb
from jobqueue.models import AuditEntry

#: The most characters of a reason.
LONGEST = 300

#: Above this many jobs the number is typed.
MANY = 1_000


class Confirmation(forms.Form):
    """The fields of one verb. Nothing is left to the browser, which may have its own ideas of what is required."""

    use_required_attribute = False

    reason = forms.CharField(
        label=_("Reason"),
        max_length=LONGEST,
        error_messages={
            "required": _("Say why: others will read it."),
            "max_length": _("At most %(limit_value)d characters; these are %(show_value)d."),
        },
        widget=forms.TextInput(
            attrs={"list": "jq-reasons", "autocomplete": "off", "aria-required": "true"}
        ),
    )
    attempts = forms.ChoiceField(
        label=_("Attempts"),
        choices=[
            ("one", _("One more attempt")),
            ("all", _("As many more attempts as the task gives a new job")),
        ],
        initial="one",
        required=False,
        widget=forms.RadioSelect,
    )
    until = forms.DateTimeField(
        label=_("Resume automatically at"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    number = forms.CharField(
        label=_("Number"),
        max_length=20,
        widget=forms.TextInput(
            attrs={"inputmode": "numeric", "autocomplete": "off", "aria-required": "true"}
        ),
    )

    def __init__(
        self, verb: Verb, frozen: Frozen, now: datetime, zone: str, *, every: bool, data: Any = None
    ) -> None:
        """The form for `frozen.offered` rows, at `now` by the database's clock."""
        super().__init__(data)
        self.offered, self.now = frozen.offered, now
        self.fields["reason"].help_text = (
            _("Kept in the audit log, and in the log of each job.")
            if verb.kind == "job" and verb.key != "purge"
            else _("Kept in the audit log.")
        )
        if verb.key != "requeue":
            del self.fields["attempts"]
        if verb.key == "pause":
            self.fields["until"].help_text = (
                _("In %s. Leave it empty to pause until somebody resumes it.") % zone
            )
        else:
            del self.fields["until"]
        if verb.typed or every or self.offered > MANY:
            self.fields["number"].help_text = _("Type %s to confirm.") % words.grouped(self.offered)
        else:
            del self.fields["number"]
        if self.is_bound and self.errors:
            wrong = next(name for name in self.fields if name in self.errors)
            self.fields[wrong].widget.attrs["autofocus"] = True

    def clean_number(self) -> str:
        """The number that the page showed, with or without signs between its thousands."""
        typed = re.sub(r"[\s.,'’]", "", self.cleaned_data["number"])
        if typed != str(self.offered):
            raise forms.ValidationError(
                _("That is not the number. Type %s.") % words.grouped(self.offered)
            )
        return typed

    def clean_until(self) -> datetime | None:
        """A time ahead, by the database's clock."""
        until: datetime | None = self.cleaned_data["until"]
        if until is not None and until < self.now + timedelta(seconds=30):
            raise forms.ValidationError(_("That time has passed."))
        return until


def recent_reasons(request: HttpRequest, using: str) -> list[str]:
    """What this person gave as reasons lately, the newest first."""
    who = Actor.of(request.user)
    own = AuditEntry.objects.using(using).filter(actor_name=who.name, actor_id=who.id)
    newest = own.exclude(reason="").order_by("-pk").values_list("reason", flat=True)[:50]
    return list(dict.fromkeys(reason for reason in newest if len(reason) <= LONGEST))[:8]
