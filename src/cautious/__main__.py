"""`python -m cautious`."""

from cautious.cli.main import main

main()
