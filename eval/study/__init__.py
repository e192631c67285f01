"""The study: training methods side by side from the same starts, over seeds, with what they changed measured."""
