"""Studies: one file or folder per question to the theory, found automatically; `kit` holds their building blocks."""
