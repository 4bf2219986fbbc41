"""Are the numbers right?  Compiled graphs beside eager, and the smallest graph that shows a difference."""
