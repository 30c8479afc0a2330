"""The explorer: one page that trains attention in the browser, and what the library adds when it is served."""
