"""Measuring candidates: programs of one kernel, or of several, each with its schedule, built and timed in worker processes.

A candidate is text (`lower.modules`) and sizes, so that it can be built anywhere. What it computes is checked against its own
graph before its time counts; a crash, a hang, a wrong result or want of memory costs that candidate and is its recorded reason.
"""
