"""Image sets: digits, fashion, letters."""
