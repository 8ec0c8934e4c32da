"""One scale for every property test: LOOPWRIGHT_TEST_SCALE multiplies the number of examples (0.5; make test-deep: 20)."""
import os

from hypothesis import HealthCheck, settings

SCALE = float(os.environ.get("LOOPWRIGHT_TEST_SCALE", "0.5"))


def examples(n: int) -> settings:
    """Hypothesis settings for n examples at scale 1; three at least, or all there are."""
    return settings(max_examples=max(min(n, 3), round(n * SCALE)), deadline=None, derandomize=True, database=None,
                    suppress_health_check=list(HealthCheck))
