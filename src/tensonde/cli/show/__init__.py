"""Output of the commands: tables, plots and sentences in the terminal."""
