"""Number formats: one module per family, and `presets`, the table of those in use."""
