"""Sessions that agents write down themselves, made into runs; and one run of several views."""
