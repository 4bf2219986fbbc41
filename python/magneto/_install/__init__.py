"""magneto.install(): what torch.compile and frameworks do while it holds.  Private."""
