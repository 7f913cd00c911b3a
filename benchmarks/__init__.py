"""Speed, as ratios against what a user would do otherwise, measured in the same run."""
