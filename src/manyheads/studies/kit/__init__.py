"""What studies are made of: estimates and the words for them, figures, sweeps, and how a study is found and run."""
