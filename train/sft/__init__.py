"""Cold start: supervised fine-tuning on example episodes."""
