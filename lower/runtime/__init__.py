"""What compiled code needs around it: engine, dispatcher, thread pool, scratch memory, BLAS, cache."""
