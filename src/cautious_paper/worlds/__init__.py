"""The worlds, familiar and novel, with no learner in sight."""
