"""Invoices, and when they are to be paid."""

from billing.terms import last_day

__all__ = ["last_day"]
