"""Numbers measured on models and runs, with no claim attached."""
