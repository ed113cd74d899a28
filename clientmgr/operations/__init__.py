"""What operators ask of the system as a whole: health, nightly jobs, maintenance, migrations."""
