"""Ground truth for `blame`: recorded runs whose breaks are known, since they were planted.

    .venv/bin/python -m benchmarks.blame run --work DIR       # goes on where it was stopped
    .venv/bin/python -m benchmarks.blame report --work DIR    # writes docs/blame-ground-truth.*

Three small projects are taken from their source distributions (the network is needed once). A run
works on one of them for 20 to 200 steps, most of them harmless, recorded by the SDK with the files
around each step. At known steps a mutation of the code goes in. Then `blame_run` is asked which
step it was, and plain `git bisect run` is asked the same of the same states. Each run is one line
of the log. A run is made of its name alone, and draws of flaky tests are numbered, so a second
call makes the same runs.

To be reached: no wrong `proven` on a deterministic break; at most 2 * ceil(log2 states) + 7
executions until `likely` and 8 more until `proven`, reduction and undoing apart; a test that fails
never before and at 0.5 after a step named rightly in at least 95 %.
"""
