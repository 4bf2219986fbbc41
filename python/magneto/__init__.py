"""magneto: makes unmodified PyTorch programs faster."""
