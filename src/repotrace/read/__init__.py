"""The one window of every face on the recorded runs: read-only queries that give view records.

A view is a frozen record with a `schema_version`; `json_object()` is what `--json` prints, and
`model_json_schema()` its schema. Nothing here renders or prints.

`runs`: lists, and runs as tables. `steps`: one step whole. `diffs`: what a step changed.
`views`: the records.
"""
