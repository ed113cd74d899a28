"""One folder per subject; each holds its assets, checks, sensors and schedules together."""

import warnings

import dagster as dg

# Backfill policies have been in beta for years and are pinned with Dagster's version: no need to be told at each start.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
