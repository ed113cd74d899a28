"""What the one-column migration adds."""

# ruff: noqa: RUF012 - the way of Django

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("devices", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="device",
            name="nickname",
            field=models.TextField(null=True),
        ),
    ]
