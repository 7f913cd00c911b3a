"""The playground: a page in the browser, and the small server that hands it out on this machine."""
