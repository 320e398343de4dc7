"""A standalone pytest test out of a captured failure.

    path = write_test(report, "tests/test_regression_5303.py")

The test needs pytest and the standard library only. It runs the recorded command again and
passes while everything stays as recorded, or (`expect="fixed"`) once the failure is gone.
"""

from repotrace.generator.reproduction import Reproduction, as_reproduction, slugify
from repotrace.generator.writing import InvalidTestName, describe, generate_test, write_test

__all__ = [
    "InvalidTestName",
    "Reproduction",
    "as_reproduction",
    "describe",
    "generate_test",
    "slugify",
    "write_test",
]
