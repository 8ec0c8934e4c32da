"""The intermediate representation: sizes, types, ops, graphs, loops. Imports nothing of loopwright outside itself."""
