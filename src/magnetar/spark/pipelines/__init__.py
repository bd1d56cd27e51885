"""Runs PySpark jobs and declarative pipelines as they are."""
