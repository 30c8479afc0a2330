"""One file per question asked of the theory: its sweep, its figures, its finding."""
