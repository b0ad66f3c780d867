"""From runs to committed rows: the conductor, retries, costs and progress."""
