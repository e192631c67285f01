"""How a run is described, checked and watched: options, presets, dry run, monitor."""
