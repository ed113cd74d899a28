"""One folder per subject; each holds its assets, checks, sensors and schedules together. Nothing registers them:
`definitions.py` finds what the modules in here define.
"""
