"""All tests of the project, one folder per kind."""
