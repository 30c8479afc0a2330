"""A classifier for a user's own sequences: settings chosen by a short comparison, files, one recommendation."""
