"""Small faults in the product, each with the test that must fail."""
