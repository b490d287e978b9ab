"""Pages in a browser: the URL is the question. Forms and answers come from the declared questions; nothing is computed here."""
