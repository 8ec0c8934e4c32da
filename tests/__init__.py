"""Tests of programs as rules make them: what was tuned on this machine is left aside, but where a test is about it."""
import os

os.environ.setdefault("LOOPWRIGHT_TUNE", "off")
