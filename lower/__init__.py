"""From the graph to machine code: partition, schedule, memory plan, generation, loading.

Importing this folder loads none of it: the compiler comes with the first compile (`runtime.lazy.compile_version`).
"""
