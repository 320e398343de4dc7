"""Tests of a project, executed on the files of states."""
