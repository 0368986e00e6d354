"""A run from and to the formats of other programs: folders of Hugging Face, and GGUF."""
