"""The model and the engine: everything that turns text into speech, usable without Ray."""
