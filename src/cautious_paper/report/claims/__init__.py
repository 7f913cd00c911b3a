"""The paper's claims, judged on finished runs."""
