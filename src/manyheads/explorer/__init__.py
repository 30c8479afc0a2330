"""The explorer: one page that trains attention in the browser, and the server that connects it to the library."""
