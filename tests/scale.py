"""One scale for every property test: LOOPWRIGHT_TEST_SCALE multiplies the number of examples (make test-deep: 20)."""
import os

from hypothesis import HealthCheck, settings

SCALE = float(os.environ.get("LOOPWRIGHT_TEST_SCALE", "1"))


def examples(n: int) -> settings:
    """Hypothesis settings for n examples at scale 1."""
    return settings(max_examples=max(1, round(n * SCALE)), deadline=None, derandomize=True, database=None,
                    suppress_health_check=list(HealthCheck))
