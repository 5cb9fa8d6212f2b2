"""Options: their schema, one class an algorithm, recipes, presets, hints for the names of other packages."""
