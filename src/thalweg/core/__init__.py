"""Types, random generators, configuration and errors that all packages use."""
