from django.db import migrations, models

import jobqueue.fields


class Migration(migrations.Migration):
    dependencies = [
        ("jobqueue", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Overview",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "overview",
                "managed": False,
                "default_permissions": (),
            },
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("view_job_args", "Can see jobs' arguments and results"),
                    ("requeue_job", "Can requeue jobs and run them now"),
                    ("cancel_job", "Can cancel jobs"),
                    ("purge_job", "Can purge jobs"),
                    ("bulk_job", "Can change all jobs that match"),
                ],
            },
        ),
        migrations.AlterModelOptions(
            name="worker",
            options={
                "default_permissions": ("view",),
                "permissions": [("control_worker", "Can quiet and stop workers")],
            },
        ),
        migrations.AddField(
            model_name="worker",
            name="asked",
            field=models.CharField(
                blank=True,
                choices=[("quiet", "Quiet"), ("stop", "Stop")],
                db_default="",
                default="",
                max_length=5,
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="asked_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="worker",
            name="asked_by",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddField(
            model_name="worker",
            name="asked_reason",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddField(
            model_name="worker",
            name="memory",
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("actor_id", models.CharField(blank=True, default="", max_length=64)),
                ("actor_name", models.CharField(blank=True, default="", max_length=200)),
                ("verb", models.CharField(max_length=20)),
                ("target_kind", models.CharField(max_length=10)),
                ("target", models.CharField(blank=True, default="", max_length=400)),
                ("reason", models.TextField(blank=True, default="")),
                (
                    "result",
                    models.CharField(
                        choices=[("running", "Running"), ("done", "Done"), ("refused", "Refused")],
                        default="done",
                        max_length=7,
                    ),
                ),
                ("chosen", models.PositiveIntegerField(default=0)),
                ("changed", models.PositiveIntegerField(default=0)),
                ("skipped", jobqueue.fields.ExactJSONField(blank=True, default=dict)),
                ("message", models.TextField(blank=True, default="")),
            ],
            options={
                "verbose_name_plural": "audit log",
                "permissions": [("export_audit", "Can export the audit log")],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        models.F("actor_name"), models.F("id"), name="jobqueue_audit_actor"
                    ),
                    models.Index(models.F("target"), models.F("id"), name="jobqueue_audit_target"),
                    models.Index(models.F("at"), name="jobqueue_audit_at"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Sweep",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField()),
                ("passes", models.PositiveIntegerField(default=1)),
                ("took", models.FloatField(default=0.0)),
                ("worker", models.CharField(blank=True, default="", max_length=200)),
                ("actor_name", models.CharField(blank=True, default="", max_length=200)),
                ("found", jobqueue.fields.ExactJSONField(blank=True, default=dict)),
                ("repaired", jobqueue.fields.ExactJSONField(blank=True, default=dict)),
                ("repairs", jobqueue.fields.ExactJSONField(blank=True, default=list)),
                ("left", jobqueue.fields.ExactJSONField(blank=True, default=list)),
                ("eventful", models.BooleanField(default=False)),
            ],
            options={
                "permissions": [("run_sweep", "Can run a sweep")],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        models.F("id"),
                        condition=models.Q(("eventful", True)),
                        name="jobqueue_eventful",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Tally",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("span", models.PositiveIntegerField()),
                ("starts_at", models.DateTimeField()),
                ("queue_name", models.CharField(max_length=100)),
                ("task_path", models.CharField(max_length=400)),
                ("completed", models.PositiveIntegerField(default=0)),
                ("failed", models.PositiveIntegerField(default=0)),
                ("retried", models.PositiveIntegerField(default=0)),
                ("waits", jobqueue.fields.ExactJSONField(blank=True, default=dict)),
                ("runs", jobqueue.fields.ExactJSONField(blank=True, default=dict)),
                ("last_error", models.CharField(blank=True, default="", max_length=300)),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "starts_at", "queue_name", "task_path"),
                        name="jobqueue_one_tally_a_span",
                    )
                ],
            },
        ),
    ]
