"""Tests of the package bringupd: python -m unittest discover -s tests -t . runs them.

They need a program bringupd, which the installed package contains; otherwise it must be in PATH.
"""
