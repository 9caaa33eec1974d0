"""A fleet of hosts as data: its model, its file, and which of its hosts can serve a demand."""
