"""Building blocks of studies: estimates and their wording, figures, sweeps, and how a study is found and run."""
