"""What goes into each golden file, one module per file family."""
