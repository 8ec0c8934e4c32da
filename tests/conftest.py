"""What was collected stays to the end: the garbage collector need not look at it again and again."""
import gc


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
