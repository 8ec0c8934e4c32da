"""Speed beside NumPy, and JAX and PyTorch where they are installed: `make bench`."""
