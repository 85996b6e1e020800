"""Measures GPUs with JAX: transfers, collectives, matmul rates, repeatable results and memory.

A job runs it on the GPUs that it holds (docs/gpus.md). It judges nothing: it writes what it measured as one JSON
document, and the portal derives the verdicts. Nothing here imports JAX by itself.
"""

# Of the JSON document. A reader accepts documents of its own version only.
VERSION = 1
