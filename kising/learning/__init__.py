"""Learning: sessions, their states and verdicts, the steps they take, and scores and errors of what is learned."""
