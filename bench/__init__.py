"""Benchmarks: eager, torch.compile and magneto side by side.  `python -m bench cpu`."""
