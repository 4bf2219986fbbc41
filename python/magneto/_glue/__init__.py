"""What recordings and compiled graphs call: each module is imported when it is first needed."""
