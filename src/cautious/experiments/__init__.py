"""Which runs: built-in examples, the paper's settings as data, the pipeline and the store of results."""
