"""Test clock and local cluster for users' own tests."""
