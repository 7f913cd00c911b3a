"""`cautious play`: the playground in a browser."""

from __future__ import annotations

from dataclasses import dataclass

from cautious.cli.console import say


@dataclass
class Play:
    """Open the playground in a browser: choose a level between ordinary and cautious, and see how decisions change.

    The page has three tabs: draw an image and see what each policy does with it; watch a cautious and an ordinary car drive;
    make a small table by clicking and train on it. The page computes everything itself. Its server accepts connections from
    this machine only; Ctrl-C stops it.

    Example: cautious play
    """

    port: int | None = None
    """Port of the server; default: 8420, or any free port if that is in use."""
    browser: bool = True
    """Open the page in the browser; otherwise only print its address."""

    def run(self) -> None:
        """Serve the page until Ctrl-C."""
        import threading
        import webbrowser

        from cautious_paper.play.server import PlayServer

        with PlayServer(self.port) as server:
            say(f"the playground is at {server.address} (Ctrl-C ends it)")
            if self.browser:
                threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
            try:
                server.serve_forever(poll_interval=0.2)
            except KeyboardInterrupt:
                say("ended.")
