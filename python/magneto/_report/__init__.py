"""What magneto.report is made of: facts, their places in the source, and the page."""
