"""The tables of runs: migrations 2 and 3 of the database, and the documentation of its schema.

Moments are microseconds since 1970, UTC. A column marked *text* holds a short text as it is
(TEXT; BLOB if it is no valid Unicode, as in all columns) and a long one as an INTEGER, the id of
its row in `texts`, which says where in a block of texts it lies. A column marked *JSON* holds a
JSON document, in the same way. A step is named by its `id`; rows may name one that is not there
(yet), so there are no foreign keys.
"""

RUNS = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    task_id TEXT,
    task,  -- text
    agent TEXT,
    agent_version TEXT,
    source TEXT NOT NULL DEFAULT '',
    source_id TEXT,
    environment TEXT,
    status TEXT NOT NULL,
    outcome TEXT,
    outcome_given INTEGER NOT NULL DEFAULT 0,  -- 1: a writer said it, 0: read off the tests
    error,  -- text
    started_at INTEGER NOT NULL,
    completed_at INTEGER,
    last_event_at INTEGER,
    workspace,  -- whole
    base_commit TEXT,
    base_state TEXT,
    base_quality TEXT,
    parent_run_id TEXT,
    branched_from_step INTEGER,
    models TEXT NOT NULL DEFAULT '[]',  -- JSON
    pinned INTEGER NOT NULL DEFAULT 0,
    attributes,  -- JSON
    totals TEXT,  -- JSON of RunTotals, as of the last ingest
    next_step INTEGER NOT NULL DEFAULT 1,  -- the number of the next step
    writer TEXT  -- journal file of the process that started it
);
CREATE INDEX runs_by_start ON runs (started_at);
CREATE INDEX runs_by_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;

CREATE TABLE run_tags (
    run_id TEXT NOT NULL,
    tag TEXT NOT NULL,
    PRIMARY KEY (run_id, tag)
) WITHOUT ROWID;

-- The names by which sources know a run; several for a run that was seen from several sides.
CREATE TABLE run_sources (
    source TEXT NOT NULL,
    source_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (source, source_id)
) WITHOUT ROWID;
CREATE INDEX run_sources_by_run ON run_sources (run_id);

-- Other ids for what is known already: of a run (run_id is empty then), a step, a model call.
CREATE TABLE aliases (
    run_id TEXT NOT NULL,
    alias TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (run_id, alias)
) WITHOUT ROWID;

CREATE TABLE execution_steps (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_number INTEGER NOT NULL,
    step_type TEXT NOT NULL,
    description,  -- text
    started_at INTEGER NOT NULL,
    completed_at INTEGER,
    status TEXT NOT NULL,
    input_context,  -- text
    output_result,  -- text
    metadata,  -- JSON
    parent_id TEXT,
    source TEXT NOT NULL DEFAULT '',
    external_id TEXT,
    reason,  -- text
    attempt INTEGER NOT NULL DEFAULT 1,
    retry_of TEXT,
    state_id TEXT,
    state_before_id TEXT,
    state_quality TEXT,
    state_reason,  -- text
    ambiguous INTEGER NOT NULL DEFAULT 0,
    error,  -- text
    label TEXT,
    writer TEXT  -- journal file of the process that started it
);
CREATE UNIQUE INDEX execution_steps_by_number ON execution_steps (run_id, step_number);
CREATE UNIQUE INDEX execution_steps_by_id ON execution_steps (run_id, id);
CREATE UNIQUE INDEX execution_steps_by_external_id
    ON execution_steps (run_id, source, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX execution_steps_unfinished ON execution_steps (writer) WHERE status = 'started';

CREATE TABLE llm_interactions (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL DEFAULT '',
    prompt,  -- text
    response,  -- text
    model TEXT NOT NULL DEFAULT '',
    tokens_used INTEGER NOT NULL DEFAULT 0,
    timestamp INTEGER NOT NULL,
    purpose TEXT NOT NULL,
    source TEXT NOT NULL DEFAULT '',
    external_id TEXT,
    provider TEXT,
    previous INTEGER,  -- rowid of the call whose first `kept` messages this one repeats
    kept INTEGER NOT NULL DEFAULT 0,
    added TEXT NOT NULL DEFAULT '[]',  -- JSON: ids in `texts` of the messages after those
    depth INTEGER NOT NULL DEFAULT 0,  -- number of predecessors to be read
    response_message,  -- JSON
    tools,  -- JSON
    parameters,  -- JSON
    input_tokens INTEGER,
    output_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    reasoning_tokens INTEGER,
    cost_usd TEXT,  -- decimal
    cost_source TEXT,
    duration REAL,
    first_token REAL,
    stop_reason TEXT,
    request_id TEXT,
    attempts INTEGER NOT NULL DEFAULT 1,
    error  -- text
);
CREATE UNIQUE INDEX llm_interactions_by_id ON llm_interactions (run_id, id);
CREATE INDEX llm_interactions_by_step ON llm_interactions (run_id, step_id);
CREATE UNIQUE INDEX llm_interactions_by_external_id
    ON llm_interactions (run_id, source, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX llm_interactions_by_previous ON llm_interactions (previous)
    WHERE previous IS NOT NULL;

CREATE TABLE file_operations (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL DEFAULT '',
    operation_type TEXT NOT NULL,
    file_path NOT NULL,  -- whole, whatever its length
    timestamp INTEGER NOT NULL,
    before_id TEXT,  -- contents lie in the snapshot store
    after_id TEXT,
    mode_before INTEGER,
    mode_after INTEGER,
    renamed_from,  -- whole
    is_binary INTEGER NOT NULL DEFAULT 0,
    lines_added INTEGER,
    lines_removed INTEGER,
    origin TEXT NOT NULL
);
CREATE UNIQUE INDEX file_operations_by_id ON file_operations (run_id, id);
CREATE INDEX file_operations_by_step ON file_operations (run_id, step_id);
CREATE INDEX file_operations_by_path ON file_operations (file_path, run_id);

CREATE TABLE file_reads (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL DEFAULT '',
    file_path NOT NULL,  -- whole, whatever its length
    timestamp INTEGER NOT NULL,
    kind TEXT NOT NULL,
    first_line INTEGER,
    last_line INTEGER,
    object_id TEXT
);
CREATE UNIQUE INDEX file_reads_by_id ON file_reads (run_id, id);
CREATE INDEX file_reads_by_step ON file_reads (run_id, step_id);
CREATE INDEX file_reads_by_path ON file_reads (file_path, run_id);

CREATE TABLE log_entries (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT,
    level TEXT NOT NULL,
    message,  -- text
    timestamp INTEGER NOT NULL,
    logger TEXT,
    data  -- JSON
);
CREATE UNIQUE INDEX log_entries_by_id ON log_entries (run_id, id);
CREATE INDEX log_entries_by_step ON log_entries (run_id, step_id);

CREATE TABLE command_runs (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL DEFAULT '',
    command_line,  -- text
    timestamp INTEGER NOT NULL,
    duration REAL,
    exit_code INTEGER,
    is_test INTEGER NOT NULL DEFAULT 0,
    background INTEGER NOT NULL DEFAULT 0,
    state_id TEXT,
    record,  -- JSON of CommandRun without what the next four columns hold
    stdout_head,  -- text
    stdout_tail,  -- text
    stderr_head,  -- text
    stderr_tail  -- text
);
CREATE UNIQUE INDEX command_runs_by_id ON command_runs (run_id, id);
CREATE INDEX command_runs_by_step ON command_runs (run_id, step_id);

CREATE TABLE test_outcomes (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL DEFAULT '',
    command_id TEXT,
    node_id NOT NULL,  -- whole
    phase TEXT NOT NULL,
    outcome TEXT NOT NULL,
    duration REAL,
    message,  -- text
    details,  -- text
    timestamp INTEGER NOT NULL,
    state_id TEXT,
    origin TEXT NOT NULL,
    runner TEXT,
    attempt INTEGER NOT NULL DEFAULT 1
);
CREATE UNIQUE INDEX test_outcomes_by_id ON test_outcomes (run_id, id);
CREATE INDEX test_outcomes_by_step ON test_outcomes (run_id, step_id);
CREATE INDEX test_outcomes_by_node ON test_outcomes (node_id, run_id);
CREATE INDEX test_outcomes_by_command ON test_outcomes (run_id, command_id)
    WHERE command_id IS NOT NULL;

-- Texts lie in blocks: the block of a text is its id >> 12.
CREATE TABLE texts (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,  -- of the text and its run
    start INTEGER NOT NULL,  -- in the decompressed block, in bytes
    length INTEGER NOT NULL
);
CREATE UNIQUE INDEX texts_by_digest ON texts (digest);
CREATE TABLE blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- readers remember blocks, so no id comes twice
    run_id TEXT NOT NULL,
    is_open INTEGER NOT NULL DEFAULT 0,  -- 1: takes more texts
    data BLOB NOT NULL  -- compressed with zstd
);
CREATE INDEX blocks_by_run ON blocks (run_id, is_open);

-- What can be searched. `body` is the text, as elsewhere; its words are in `text_index` under
-- the same rowid once `indexed` is 1.
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    step_id TEXT,
    owner TEXT NOT NULL,  -- id of the row whose text it is
    field TEXT NOT NULL,
    body NOT NULL,  -- text
    indexed INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX documents_by_owner ON documents (run_id, owner, field);
CREATE INDEX documents_to_index ON documents (id) WHERE indexed = 0;
CREATE VIRTUAL TABLE text_index USING fts5 (body, content = '', tokenize = 'unicode61');

CREATE TABLE journal_files (
    path TEXT PRIMARY KEY,  -- absolute
    offset INTEGER NOT NULL,  -- all before it has been read
    writer TEXT,  -- JSON of its `writer` event
    closed INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE losses (
    id TEXT PRIMARY KEY,
    run_id TEXT,  -- NULL: not known
    count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX losses_by_run ON losses (run_id);
"""
"""One script. What is released is never changed: later changes are later migrations."""

STATES = """
-- Every state that was seen, in order of time; what two neighbours differ in is a step's change.
CREATE TABLE states (
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL,  -- '': before the first step
    moment TEXT NOT NULL,  -- start or end of the step
    at INTEGER NOT NULL,
    state_id TEXT NOT NULL,
    derived INTEGER NOT NULL DEFAULT 0  -- 1: its file operations have been derived
);
CREATE UNIQUE INDEX states_by_step ON states (run_id, step_id, moment);
CREATE INDEX states_to_derive ON states (run_id) WHERE derived = 0;
"""
"""The script of migration 3."""

JOINS = """
-- The files of a run at moments that belonged to no step when they were looked at.
CREATE TABLE looks (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    at INTEGER NOT NULL,  -- when the look began
    until INTEGER NOT NULL,
    state_id TEXT,  -- NULL: it failed
    reason TEXT,
    PRIMARY KEY (run_id, id)
) WITHOUT ROWID;

-- What programs write down themselves of what they do in a run, outside of the home.
CREATE TABLE transcripts (
    run_id TEXT NOT NULL,
    path TEXT NOT NULL,
    format TEXT NOT NULL,
    since INTEGER,  -- what is older is not of this run
    seen TEXT,  -- how the file was when it was last joined: its time of change and its size
    final INTEGER NOT NULL DEFAULT 0,  -- 1: joined after the end of the run
    PRIMARY KEY (run_id, path)
) WITHOUT ROWID;

-- How far the looks of a run have been joined with its steps.
CREATE TABLE joins (
    run_id TEXT PRIMARY KEY,
    last_look INTEGER NOT NULL
) WITHOUT ROWID;
"""
"""The script of migration 5."""

GROWTHS = """
-- When a transcript that tells no moments itself had grown to which size, as far as its run saw.
CREATE TABLE growths (
    run_id TEXT NOT NULL,
    path TEXT NOT NULL,
    at INTEGER NOT NULL,
    size INTEGER NOT NULL,  -- bytes
    PRIMARY KEY (run_id, path, at)
) WITHOUT ROWID;
"""
"""The script of migration 6."""

ALERTS = """
-- Whether a run was looked over for alerts. A run has a row once something was recorded of it, or
-- once somebody looked; what was there before this table has none until it changes.
CREATE TABLE alert_looks (
    run_id TEXT PRIMARY KEY,
    changes INTEGER NOT NULL,  -- of the run since the last look; 0: the look is up to date
    at INTEGER,  -- when it was looked over; NULL: never
    rules TEXT  -- digest of the rules of the look
) WITHOUT ROWID;
CREATE INDEX alert_looks_due ON alert_looks (run_id) WHERE changes > 0;

-- What the last look found.
CREATE TABLE alerts (
    run_id TEXT NOT NULL,
    position INTEGER NOT NULL,  -- in the order in which alerts are told
    rule TEXT NOT NULL,
    step INTEGER,  -- number of the step to look at
    message TEXT NOT NULL,
    evidence TEXT NOT NULL,  -- JSON
    told INTEGER NOT NULL DEFAULT 0,  -- 1: somebody was told
    posted INTEGER NOT NULL DEFAULT 0,  -- 1: it was posted
    PRIMARY KEY (run_id, position)
) WITHOUT ROWID;
CREATE INDEX alerts_untold ON alerts (run_id) WHERE told = 0;
"""
"""The script of migration 7."""
