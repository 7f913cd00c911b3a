"""Tables, figures, the claims ledger, the HTML report; reads results only."""
