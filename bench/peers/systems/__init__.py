"""What each system does: a module for each, imported in that system's process only."""
