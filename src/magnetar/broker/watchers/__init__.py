"""Topic lists by pattern: asked for once, or watched."""
