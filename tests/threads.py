"""What tests ask of threads."""
import numpy as np

import loopwright as lw


def bits_of(f, *args, **options):
    """The bytes of all results with one thread, two and five; `options` of jit."""
    compiled, found = lw.jit(f, **options), []
    try:
        for count in (1, 2, 5):
            lw.set_threads(count)
            compiled(*args)  # starts the workers: they are counted from the next call on
            found.append([np.asarray(x).tobytes() for x in compiled(*args)])
    finally:
        lw.set_threads(None)
    return found
