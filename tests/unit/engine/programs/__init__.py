"""Tests of the whole engine with small programs: the operations, and the state afterwards."""
