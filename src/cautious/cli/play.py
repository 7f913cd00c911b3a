"""`cautious play`: the playground in a browser."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Play:
    """Open the playground in a browser: turn the dial between ordinary and cautious, and see what changes.

    Draw a digit or something else, watch two cars drive, or click a table together. Everything is computed in the page; the
    server is reached from this machine only and ends with Ctrl-C.

    Example: cautious play
    """

    port: int | None = None
    """Where to listen; if not given, 8420, or any free port if that is in use."""
    browser: bool = True
    """Open the page in the browser; otherwise only its address is printed."""

    def run(self) -> None:
        """Serve the page until Ctrl-C."""
        import threading
        import webbrowser

        from cautious.cli.console import say
        from cautious.play.server import PlayServer

        with PlayServer(self.port) as server:
            say(f"the playground is at {server.address} (Ctrl-C ends it)")
            if self.browser:
                threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
            try:
                server.serve_forever(poll_interval=0.2)
            except KeyboardInterrupt:
                say("ended.")
