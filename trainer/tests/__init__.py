"""Tests of the trainer, with real Keras: `python -m pytest trainer`."""
