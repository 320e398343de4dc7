"""Terms of payment."""

from datetime import date, timedelta


def last_day(sent: date, terms: str) -> date:
    """The last day on which an invoice sent on `sent` is paid in time.

    Terms are `30 days`, or `yearly`: the same day of the next year.
    """
    if terms == "yearly":
        return sent.replace(year=sent.year + 1)
    number, _, unit = terms.partition(" ")
    if unit != "days" or not number.isdigit():
        raise ValueError(f"no such terms: {terms!r}")
    return sent + timedelta(days=int(number))
