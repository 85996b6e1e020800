"""Trains image models with Keras 3 on whichever backend is there (KERAS_BACKEND).

A JSON configuration goes in; event files, checkpoints, an evaluation and an exit code come out.
See docs/trainer.md. Nothing here imports JAX, TensorFlow or PyTorch by itself.
"""
