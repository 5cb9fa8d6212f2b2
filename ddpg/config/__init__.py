"""Options: their schema, one class per algorithm, presets and recipes, and hints for names from other packages."""
