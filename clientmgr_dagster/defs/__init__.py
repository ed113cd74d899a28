"""One folder per subject; each holds its assets, checks, sensors and schedules together."""
