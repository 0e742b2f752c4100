"""The decisions: pure functions from what is known to what should be done."""
