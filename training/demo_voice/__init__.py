"""How the embedded voice is made: a synthetic corpus, a codec, a language model, and a report on all three."""
