"""Work without a server of one's own: batch files, a chat in the terminal, models at hand, comparing formats."""
