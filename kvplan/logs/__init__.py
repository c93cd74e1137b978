"""What a running engine said: its start-up log or its metrics, as values with their line, rank and resolution."""
