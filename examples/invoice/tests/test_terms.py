from datetime import date

import pytest
from billing import last_day


def test_days_are_counted():
    assert last_day(date(2026, 3, 1), "14 days") == date(2026, 3, 15)


def test_yearly_is_the_same_day_next_year():
    assert last_day(date(2026, 5, 4), "yearly") == date(2027, 5, 4)


def test_yearly_over_a_leap_day():
    assert last_day(date(2027, 5, 4), "yearly") == date(2028, 5, 4)


def test_yearly_from_a_leap_day():
    assert last_day(date(2028, 2, 29), "yearly") == date(2029, 2, 28)


def test_other_terms_are_refused():
    with pytest.raises(ValueError, match="no such terms"):
        last_day(date(2026, 1, 1), "soon")
