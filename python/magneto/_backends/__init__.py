"""Back ends by name, and the torch-level graphs that they get.

Programs find register_backend() and list_backends() in magneto itself.
"""
