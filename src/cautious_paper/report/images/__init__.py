"""Tables and figures of image runs."""
